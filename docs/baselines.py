"""Tables of losscli next to its fastest baselines, and where losscli is slower."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

from docs.markdown import table
from docs.times import WIDTH, beside_peers, elements, ratio_to_best
from losscli.cases.axes import CONTIGUOUS, format_grad_output
from losscli.cases.case import Case
from losscli.compare.configurations import Configuration
from losscli.implementations import CUSTOM
from losscli.runs.judgements import SLOWER
from losscli.runs.records import Run
from losscli.units import format_seconds
from losscli.views.phrases import SHORT_PASSES, count


def ratios(run: Run) -> str:
    """Return the best baseline's time over losscli's: a row a loss, pass and dtype."""
    rows, sizes = _ratios(run, usual=True)
    body = [[*key, *(row.get(size, "") for size in sizes)] for key, row in rows.items()]
    headers = ["loss", "pass", "layout or grad_output", "dtype", *sizes]
    return f"{table(headers, body)}\n\n{slower(run)}"


def axes(run: Run) -> str:
    """Return the same for other values of grad_output and layouts, with all dtypes in one row."""
    rows, sizes = _ratios(run, usual=False)
    dtypes: dict[tuple[str, ...], list[str]] = {}
    for *axis, dtype in rows:
        dtypes.setdefault(tuple(axis), []).append(dtype)
    body = []
    for key, names in dtypes.items():
        found = [rows[*key, name] for name in names]
        columns = [[row.get(size, "-") for row in found] for size in sizes]
        cells = ("/".join(each) if set(each) != {"-"} else "" for each in columns)
        body.append([*key, "/".join(names), *cells])
    return table(["loss", "pass", "layout or grad_output", "dtypes", *sizes], body)


def _ratios(
    run: Run, *, usual: bool
) -> tuple[dict[tuple[str, ...], dict[str, str]], Iterable[str]]:
    """Return the rows of contiguous operands and a grad_output of 1, or all others; the sizes."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for group in beside_peers(run):
        cell = _worst(group)
        custom = cell[CUSTOM]
        axis = _axis(custom.case)
        if (not axis) != usual:
            continue
        key = (custom.case.loss, SHORT_PASSES[custom.pass_], axis, custom.case.dtype)
        text = custom.status if custom.seconds is None else f"{ratio_to_best(cell):.2f}"
        shown = f"**{text}**" if cell.slower_than or custom.seconds is None else text
        rows.setdefault(key, {})[elements(custom.case)] = shown
    sizes = dict.fromkeys(size for row in rows.values() for size in row)
    # The rows of a dtype stand together here; in a record those of a size do.
    values = [dict.fromkeys(axis) for axis in zip(*rows, strict=True)]
    return {key: rows[key] for key in product(*values) if key in rows}, sizes


def slower(run: Run) -> str:
    """Return a sentence: where losscli is slower than a baseline, how often, and by how much."""
    worst = [_worst(group) for group in beside_peers(run)]
    untimed = sum(cell[CUSTOM].seconds is None for cell in worst)
    losing = [cell for cell in worst if cell.slower_than]
    by_size: dict[str, list[Configuration]] = {}
    for cell in losing:
        by_size.setdefault(elements(cell[CUSTOM].case), []).append(cell)
    told = [
        f"{len(group) if len(by_size) > 1 else 'all'} at {size} element{'s' * (size != '1')} "
        f"({_behind(group)})"
        for size, group in by_size.items()
    ]
    of = f"{len(losing) or 'none'} of {count(len(worst), 'configuration')}"
    where = f": {', '.join(told)}" if told else ""
    own = sum(_is_slower_by_itself(cell) for cell in worst)
    short = sum(cell.too_short for cell in worst)
    said = [
        f"Tested all at once, losscli is slower than a baseline in {of}{where}.",
        f"Tested separately at 95 %, it would be {own}." if own > len(losing) else "",
        f"In {short} more its median is slower, with too few samples to tell." if short else "",
        f"In {count(untimed, 'configuration')} it has no time." if untimed else "",
    ]
    return textwrap.fill(" ".join(filter(None, said)), WIDTH)


def _worst(group: Sequence[Configuration]) -> Configuration:
    """Return the configuration in which losscli is slowest against its baseline."""
    untimed = [cell for cell in group if cell[CUSTOM].seconds is None]
    return (
        untimed[0] if untimed else min(group, key=lambda c: (not c.slower_than, ratio_to_best(c)))
    )


def _is_slower_by_itself(cell: Configuration) -> bool:
    """Tell whether the ratio to any baseline has this verdict."""
    own = cell[CUSTOM].ratios
    return any(
        each.implementation in own and own[each.implementation].verdict == SLOWER
        for each in cell.baselines
    )


def _behind(losing: Iterable[Configuration]) -> str:
    """Return which baselines are faster, and by how much at most."""
    names: Counter[str] = Counter()
    most = 0.0
    for cell in losing:
        custom = cell[CUSTOM].seconds
        assert custom
        names[cell.best_baseline.implementation] += 1
        most = max(most, custom.median * (1 - ratio_to_best(cell)))
    return f"behind {' and '.join(names)} by at most {format_seconds(most, 2)}"


def _axis(case: Case) -> str:
    """Return the layout and the grad_output if they are not the default."""
    words: list[str] = [case.layout] if case.layout != CONTIGUOUS else []
    words += [format_grad_output(case.grad_output)] if case.grad_output != 1 else []
    return " ".join(words)
