"""Write the tables of the README and of the documents from docs/results.

A table stands between `<!-- KIND: FILE key=value,value ... -->` and `<!-- end -->`. The kinds are
at the end of this file; the keys, `loss`, `dtype`, `size`, `pass`, `layout` and `grad_output`,
select results. Where no key names them, tables show contiguous operands and an incoming gradient of
1; `axes` shows the others. Under the figures of kernels that have changed since stands the commit
at which they were measured, which `ages.py` finds out from git. `functions: element` and
`functions: row` are the losses themselves, from their specs; `walls: all` is the judge's isolation;
`reasons: all` are the reasons of verdicts, `facets: all` their facets, `jobs: all` the keys of
a job;
`checks: all` the checks of verify. `wild` and `shares` are verdicts on third-party files.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from losscli.cases.axes import CONTIGUOUS
from losscli.cases.case import Case, format_grad_output
from losscli.compare.cells import Cell, best_peer, cells
from losscli.compare.cells import ratio as ratio_to
from losscli.doctor.attacks import ATTACKS
from losscli.implementations import CUSTOM
from losscli.implementations.other_projects import PACKAGES
from losscli.implementations.sandbox.isolation_parts import PARTS
from losscli.judge.job import Job
from losscli.losses import ELEMENT, EVERY_ROW_LOSS, LOSSES
from losscli.losses.elementwise.weighting import is_weighted
from losscli.reasons import CODES, FACETS, Code, Facet
from losscli.runs.columns import SMALL
from losscli.runs.judgements import IMPOSSIBLE, SLOWER
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult, Run
from losscli.units import format_bytes, format_seconds, format_size, format_ulp
from losscli.verify.checks import CHECKS
from losscli.views.bench import SHORT_PASSES
from losscli.views.phrases import count

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))
from docs import ages  # noqa: E402 - beside this program, which is run and loaded by its path

RESULTS = DOCS / "results"
VERDICTS = RESULTS / "verdicts"
DOCUMENTS = (
    DOCS.parent / "README.md",
    DOCS / "training-code.md",
    DOCS / "verification.md",
    DOCS / "judging.md",
    DOCS / "judging-in-the-wild.md",
    DOCS / "isolation.md",
    DOCS / "performance.md",
    DOCS / "sharded.md",
    DOCS / "kernel-notes.md",
    RESULTS / "README.md",
)
MARKER = re.compile(
    r"<!-- (?P<kind>\w+): (?P<file>\S+)(?P<keys>( \w+=\S+)*) -->.*?<!-- end -->", re.DOTALL
)
WIDTH = 100
EAGER = ("reference", "functional")
PEERS = (*EAGER, "compile")
OTHERS = ("compile", *(implementation.name for implementation in PACKAGES))
"""The peers that have a column of their own in a table of losses over rows."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
SHARDING = (*EAGER, "loss_parallel", "liger")
"""The peers that have a column of their own in a table of losses over ranks."""
LARGE = 2**22
"""The least elements of a case in a table of losses over rows: less is not bound by memory."""


def with_tables(text: str) -> str:
    """Return a document with its tables made anew."""

    def made_anew(match: re.Match[str]) -> str:
        opening = match[0].partition(" -->")[0] + " -->"
        keys = dict(key.split("=", 1) for key in match["keys"].split())
        file, kind = match["file"], match["kind"]
        path = RESULTS / file
        if kind == "ages":
            made, age = ages.table(), ""
        elif kind in OF_CODE:
            made, age = OF_CODE[kind](file), ""
        elif kind in OF_VERDICTS:
            made, age = OF_VERDICTS[kind](json.loads((VERDICTS / file).read_text())), ""
        elif kind == mutations.__name__:
            record = json.loads(path.read_text())
            made = mutations(record)
            age = aged(file, ages.losses_of(record), record["environment"])
        else:
            if keys and kind in TESTED:
                raise ValueError(f"{kind}: cells are tested all at once, so there are no keys")
            run = only(load(path), keys if kind in WHOLE else USUAL | keys)
            made = KINDS[kind](run)
            losses = (r.case.loss for r in run.results if isinstance(r, BenchResult))
            age = "" if kind == environment.__name__ else aged(file, losses, run.environment)
        return "\n\n".join(filter(None, (opening, made, age, "<!-- end -->")))

    return MARKER.sub(made_anew, text)


def aged(file: str, losses: Iterable[str], facts: Mapping[str, Any]) -> str:
    """Return the sentence that names the kernels which changed since a record; or nothing."""
    return ages.sentence(file, losses, ages.device_of(dict(facts)))


def load(path: Path) -> Run:
    """Read the record of a bench."""
    return read_run(path, "bench")


def only(run: Run, keys: Mapping[str, str]) -> Run:
    """Return a run with the results that the keys of a marker choose."""

    def facts(result: BenchResult) -> dict[str, str]:
        case = result.case
        return {
            "loss": case.loss,
            "dtype": case.dtype,
            "size": format_size(case.size),
            "pass": result.pass_,
            "layout": case.layout,
            "grad_output": format_grad_output(case.grad_output),
        }

    results = (r for r in run.results if isinstance(r, BenchResult))
    wanted = {key: value.split(",") for key, value in keys.items()}
    chosen = tuple(r for r in results if all(facts(r).get(k) in v for k, v in wanted.items()))
    if not chosen:
        raise ValueError(f"no result has {dict(keys)}")
    return replace(run, results=chosen)


def environment(run: Run) -> str:
    """Return a sentence on the machine and on what ran there."""
    facts = run.environment
    cpu = f"{facts['cpu_cores']} cores of {facts['cpu']}"
    parts = [f"{cpu}, {format_bytes(facts['cpu_cache_bytes'])} of cache"]
    torch = f"torch {facts['torch']}"
    if facts["gpu"]:
        memory, cache = (format_bytes(facts[f"gpu_{name}_bytes"]) for name in ("memory", "cache"))
        gpus = NUMBERS[len(facts.get("ranks") or (0,))]
        parts = [
            f"{gpus} {facts['gpu']}: {facts['gpu_sms']} multiprocessors, {memory}, {cache} of L2",
            f"driver {facts['gpu_driver']}",
            cpu,
        ]
        torch += f" with CUDA {facts['torch_cuda']}"
    day = run.created.partition("T")[0]
    return textwrap.fill(f"Measured on {'; '.join([*parts, torch])}; {day}.", WIDTH)


def bench(run: Run) -> str:
    """Return a row per case and pass: losscli's time, that of each peer, and the ratios."""
    rows = []
    for group in _beside_peers(run):
        custom = group[0][CUSTOM]
        rows.append(
            [
                custom.case.loss,
                SHORT_PASSES[custom.pass_],
                _time(custom),
                f"{custom.gbps:,.0f}" if custom.gbps else "",
                _share(custom),
                *(_peer(group, peer) for peer in PEERS),
                "" if custom.peak_extra_bytes is None else format_bytes(custom.peak_extra_bytes),
            ]
        )
    headers = ["loss", "pass", CUSTOM, "GB/s", "% of limit", *PEERS, "extra memory"]
    return _table(headers, rows)


def losses(run: Run) -> str:
    """Return a row per loss: for each pass losscli's time, and the faster eager peer's over it."""
    rows: dict[str, dict[str, list[str]]] = {}
    for group in _beside_peers(run):
        custom = group[0][CUSTOM]
        ratios = {peer: ratio for peer in EAGER if (ratio := _speedup(group, peer))}
        faster = min(ratios, key=ratios.__getitem__, default="")
        said = f"{ratios[faster]:.2f}x {faster}" if faster else ""
        rows.setdefault(custom.case.loss, {})[custom.pass_] = [_time(custom), said]
    headers = [header for pass_ in SHORT_PASSES.values() for header in (pass_, f"{pass_}, speedup")]
    body = [
        [loss, *(cell for pass_ in SHORT_PASSES for cell in passes.get(pass_, ["", ""]))]
        for loss, passes in rows.items()
        if not is_weighted(loss)
    ]
    return _table(["loss", *headers], body)


def limits(run: Run) -> str:
    """Return a row per loss and dtype: for each pass the time, the share, and the ratios."""
    rows: dict[tuple[str, str], list[str]] = {}
    for group in _beside_peers(run):
        custom = group[0][CUSTOM]
        row = rows.setdefault((custom.case.loss, custom.case.dtype), [])
        ratios = [_speedup(group, peer) for peer in ("reference", "compile")]
        row += [
            _time(custom),
            _share(custom),
            *(f"{ratio:.2f}x" if ratio else "" for ratio in ratios),
        ]
    columns = ["% of limit", "vs reference", "vs compile"]
    passes = [[pass_, *columns] for pass_ in SHORT_PASSES.values()]
    headers = ["loss", "dtype", *(header for pass_ in passes for header in pass_)]
    return _table(headers, [[*key, *row] for key, row in rows.items()])


def floors(run: Run) -> str:
    """Return a row per loss and pass: the bytes to move, the speed of the limit, and the shares."""
    rows = []
    for group in _beside_peers(run):
        custom = group[0][CUSTOM]
        limit = custom.limit_gbps
        rows.append(
            [
                custom.case.loss,
                SHORT_PASSES[custom.pass_],
                f"{custom.bytes / custom.case.elements:.0f}",
                f"{limit:,.0f}" if limit else "",
                format_seconds(custom.bytes / limit / 1e9) if limit else "",
                *(_share(group[0][name]) if name in group[0] else "" for name in (CUSTOM, *PEERS)),
            ]
        )
    headers = ["loss", "pass", "bytes an element", "limit, GB/s", "floor"]
    return _table([*headers, *(f"{name}, %" for name in ("losscli", *PEERS))], rows)


def rows(run: Run) -> str:
    """Return a row per case of 2^22 elements or more: times and shares of both passes."""
    cases: dict[str, list[list[Cell]]] = {}
    for group in _beside_peers(run):
        case = group[0][CUSTOM].case
        if case.elements >= LARGE:
            cases.setdefault(_without(case.name, "mean", case.distribution), []).append(group)
    body = []
    for name, passes in cases.items():
        firsts = [group[0] for group in passes]
        eager = [_fastest(cell, EAGER) for cell in firsts]
        columns = [
            [_time(cell[CUSTOM]) for cell in firsts],
            [_share(cell[CUSTOM]) for cell in firsts],
            [_time(result) if result else "" for result in eager],
            *([_time(c[peer]) if peer in c else "" for c in firsts] for peer in OTHERS),
            [f"{_ratio(cell):.2f}x" for cell in firsts],
        ]
        body.append([name, *map(_both, columns)])
    headers = ["case", CUSTOM, "% of limit", "fastest of PyTorch", *OTHERS, "speedup"]
    return _table(headers, body)


def linear(run: Run) -> str:
    """Return a row per case of hidden states: losscli's time, share of the products, and memory.

    And those of each peer.
    """
    rows = []
    for group in cells(run):
        custom = group.get(CUSTOM)
        if custom is None or not custom.operations:
            continue
        name = _without(custom.case.name, custom.case.reduction, custom.case.distribution)
        speed = f"{custom.teraflops:,.0f}" if custom.teraflops else ""
        peers = [_with_memory(group[peer]) if peer in group else "" for peer in (*EAGER, *OTHERS)]
        own = [_time(custom), speed, _share(custom), _extra(custom)]
        rows.append([name, SHORT_PASSES[custom.pass_], *own, *peers])
    headers = ["case", "pass", CUSTOM, "TFLOP/s", "% of limit", "extra memory", *EAGER, *OTHERS]
    return _table(headers, rows)


def sharded(run: Run) -> str:
    """Return a row per case over ranks: losscli's time, its collective, and the peers' times.

    Beside a time stands the memory beyond operands and results, beside a peer's the ratio as well.
    """
    rows = []
    for group in cells(run):
        custom = group.get(CUSTOM)
        if custom is None or not custom.seconds or not custom.collective:
            continue
        case = custom.case
        words = (case.reduction, case.distribution, f"ranks={case.ranks}")
        peers = []
        for peer in SHARDING:
            found = group.get(peer)
            told = [f"{custom.speedup[peer]:.2f}x"] if peer in custom.speedup else []
            peers.append(", ".join([_with_memory(found), *told]) if found else "")
        exchanged = custom.collective
        rows.append(
            [
                f"{_without(case.name, *words)}, {SHORT_PASSES[custom.pass_]}",
                _time(custom),
                _share(custom),
                _extra(custom),
                f"{exchanged.bytes / case.shape[0]:.0f}",
                format_seconds(exchanged.seconds),
                *peers,
            ]
        )
    own = [CUSTOM, "% of limit", "extra memory", "bytes a row", "collective alone"]
    return _table(["case", *own, *SHARDING], rows)


def _with_memory(result: BenchResult) -> str:
    return ", ".join(filter(None, (_time(result), _extra(result))))


def _extra(result: BenchResult) -> str:
    return "" if result.peak_extra_bytes is None else format_bytes(result.peak_extra_bytes)


def _both(passes: Sequence[str]) -> str:
    """Return what is told of both passes; nothing where neither has it."""
    return " / ".join(each or "-" for each in passes) if any(passes) else ""


def _fastest(cell: Cell, names: Sequence[str]) -> BenchResult | None:
    """Return the fastest of some peers; None where none of them has a time."""
    timed = [cell[name] for name in names if name in cell and cell[name].seconds]
    return min(timed, key=lambda r: r.seconds.median if r.seconds else 0.0, default=None)


def _without(name: str, *words: str) -> str:
    return " ".join(word for word in name.split() if word not in words)


def ratios(run: Run) -> str:
    """Return the best baseline's time over losscli's: a row a loss, pass and dtype."""
    rows, sizes = _ratios(run, usual=True)
    body = [[*key, *(row.get(size, "") for size in sizes)] for key, row in rows.items()]
    table = _table(["loss", "pass", "layout or grad_output", "dtype", *sizes], body)
    return f"{table}\n\n{slower(run)}"


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
    return _table(["loss", "pass", "layout or grad_output", "dtypes", *sizes], body)


def _ratios(
    run: Run, *, usual: bool
) -> tuple[dict[tuple[str, ...], dict[str, str]], Iterable[str]]:
    """Return the rows of contiguous operands and a grad_output of 1, or all others; the sizes."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for group in _beside_peers(run):
        cell = _worst(group)
        custom = cell[CUSTOM]
        axis = _axis(custom.case)
        if (not axis) != usual:
            continue
        key = (custom.case.loss, SHORT_PASSES[custom.pass_], axis, custom.case.dtype)
        text = custom.status if custom.seconds is None else f"{_ratio(cell):.2f}"
        shown = f"**{text}**" if cell.slower_than or custom.seconds is None else text
        rows.setdefault(key, {})[_elements(custom.case)] = shown
    sizes = dict.fromkeys(size for row in rows.values() for size in row)
    # A record goes through the sizes first; whoever reads this compares dtypes.
    values = [dict.fromkeys(axis) for axis in zip(*rows, strict=True)]
    return {key: rows[key] for key in product(*values) if key in rows}, sizes


def slower(run: Run) -> str:
    """Return a sentence: where losscli is slower than a baseline, how often, and by how much."""
    worst = [_worst(group) for group in _beside_peers(run)]
    untimed = sum(cell[CUSTOM].seconds is None for cell in worst)
    losing = [cell for cell in worst if cell.slower_than]
    by_size: dict[str, list[Cell]] = {}
    for cell in losing:
        by_size.setdefault(_elements(cell[CUSTOM].case), []).append(cell)
    told = [
        f"{len(group) if len(by_size) > 1 else 'all'} at {size} elements ({_behind(group)})"
        for size, group in by_size.items()
    ]
    of = f"{len(losing) or 'none'} of {count(len(worst), 'cell')}"
    where = f": {', '.join(told)}" if told else ""
    own = sum(_is_slower_by_itself(cell) for cell in worst)
    short = sum(cell.too_short for cell in worst)
    said = [
        f"Tested all at once, losscli is slower than a baseline in {of}{where}.",
        f"By its own interval of 95 % each, it would be in {own}." if own > len(losing) else "",
        f"In {short} it is behind with too few samples to tell." if short else "",
        f"In {count(untimed, 'cell')} it has no time." if untimed else "",
    ]
    return textwrap.fill(" ".join(filter(None, said)), WIDTH)


def host(run: Run) -> str:
    """Return how long a call keeps the host busy, where the tensors are small."""
    rows = []
    for cell, *_ in _beside_peers(run):
        custom = cell[CUSTOM]
        if custom.case.elements > SMALL or not custom.host_seconds:
            continue
        row = [custom.case.loss, SHORT_PASSES[custom.pass_], _elements(custom.case)]
        row.append(format_seconds(custom.host_seconds, 3))
        for peer in PEERS:
            seconds = cell[peer].host_seconds if peer in cell else None
            ratio = (seconds or 0) / custom.host_seconds
            row.append(f"{format_seconds(seconds, 3)} ({ratio:.1f}x)" if seconds else "")
        rows.append(row)
    return _table(["loss", "pass", "elements", CUSTOM, *PEERS], rows)


def strategies(run: Run) -> str:
    """Return a row per way to finish the sum: its time at each size, and its largest error."""
    rows: dict[str, dict[str, BenchResult]] = {}
    for cell in cells(run):
        if CUSTOM in cell and not cell.peers:
            for name, result in cell.items():
                rows.setdefault(name, {})[_elements(result.case)] = result
    sizes = list(dict.fromkeys(size for row in rows.values() for size in row))
    body = []
    for name, row in rows.items():
        errors = [r.error.value_ulp for r in row.values() if r.error.value_ulp is not None]
        times = [_time(row[size]) if size in row else "" for size in sizes]
        body.append([f"`{name}`", *times, format_ulp(max(errors)) if errors else ""])
    return _table(["implementation", *sizes, "largest error, ULP"], body)


def mutations(record: Mapping[str, Any]) -> str:
    """Return the score, which check failed first how often, and a row per surviving mutation."""
    results = record["results"]
    statuses = Counter(result["status"] for result in results)
    killers = Counter(result["by"] for result in results if result["by"])
    score = ", ".join(f"{number} {status}" for status, number in statuses.items())
    first = ", ".join(f"`{name}` {number}" for name, number in killers.most_common())
    said = f"{count(len(results), 'mutation')}: {score}. What failed first: {first}."
    survivors = [
        [f"`{each['file']}`", each["mistake"], f"{each['status']}: {each['reason']}".rstrip(": ")]
        for each in results
        if not each["by"]
    ]
    table = _table(["file", "mistake", "why it survived"], survivors) if survivors else ""
    return "\n\n".join(filter(None, (textwrap.fill(said, WIDTH), table)))


def functions(unit: str) -> str:
    """Return a row per public function of the losses of each element, or of each row."""
    rows: dict[str, list[str]] = {}
    for spec in (LOSSES if unit == ELEMENT else EVERY_ROW_LOSS).values():
        optional = [operand.name for operand in spec.operands if operand.optional]
        settings = [*optional, *(parameter.name for parameter in spec.parameters)]
        formula = spec.formula.replace("|", "\\|")
        rows.setdefault(
            spec.function_name,
            [
                f"`{spec.function_name}`",
                f"`{spec.module.__name__}`",
                f"`{formula}`",
                ", ".join(f"`{name}`" for name in settings),
            ],
        )
    return _table(["function", "module", f"the loss of each {unit}", "settings"], [*rows.values()])


def walls() -> str:
    """Return a row per part of the judge's isolation: what it refuses, and what it is made of."""
    rows = []
    for part in PARTS:
        tried = "; ".join(attack.tries for attack in ATTACKS if attack.part == part.name)
        made_of = (part.by, part.without or "open", part.on_cuda or part.by)
        rows.append([part.name, tried, *made_of])
    return _table(["part", "what a file tries", "with namespaces", "without", "on a GPU"], rows)


FACET_MEANS: dict[Facet, str] = {
    "value": "the loss at ordinary values, on each branch of the formula",
    "gradient": "each gradient, for grad_output 1 and others",
    "sizes": "sizes around those at which kernels switch code paths, none and one too",
    "extreme_values": "logits of 100 and beyond, ties, ignored rows; NaN, infinities, subnormals",
    "parameters": "parameters other than the defaults; one that is taken and ignored is wrong",
    "reductions": "reductions other than the usual one",
    "dtypes": "dtypes other than its own",
    "layouts": "strides, slices, broadcasts, targets of other dtypes",
    "streams_and_graphs": "side streams and CUDA graphs; needs a GPU",
    "repeated_backward": "retain_graph, and gradients that accumulate in .grad",
    "second_derivatives": "create_graph",
    "inputs": "inputs that it overwrites, data that changes before backward, class indices out of "
    "range",
    "global_state": "flags, seeds, modes, functions, environment variables",
    "determinism": "bitwise equal results in every run",
    "memory": "reads and writes beyond the ends, uninitialised memory, leaks",
}


def facets() -> str:
    """Return the table of the facets of a verdict."""
    rows = []
    for facet in FACETS:
        names = [f"`{check.name}`" for check in CHECKS.values() if check.facet == facet]
        rows.append([facet.replace("_", " "), FACET_MEANS[facet], ", ".join(names)])
    return _table(["facet", "what is looked at", "checks"], rows)


def jobs() -> str:
    """Return the table of the keys of a job."""
    lines = ast.parse(inspect.getsource(Job)).body[0].body  # type: ignore[attr-defined]
    rows = []
    for field, text in zip_longest(lines, lines[1:]):
        if isinstance(field, ast.AnnAssign):
            told = (
                inspect.cleandoc(ast.literal_eval(text.value)) if isinstance(text, ast.Expr) else ""
            )
            rows.append(
                [f"`{ast.unparse(field.target)}`", " ".join(told.replace("``", "`").split())]
            )
    return _table(["key", "value"], rows)


def wild(record: dict[str, Any]) -> str:
    """Return a row per third-party file: how it was judged, and whether that was true."""
    rows = []
    for each in record["files"]:
        options = ", ".join(f"`{name}`" for name in re.findall(r"--[a-z]+", each["options"]))
        row = [each["origin"], f"`{each['file']}`", each["form"], options]
        for found in (each.get("cpu"), each.get("cuda")):
            if found:
                true = "yes" if found["true"] else "no"
                row += [found["verdict"], true, f"{found['seconds']:.0f}"]
            else:
                row += ["", "", ""]
        rows.append(row)
    of_device = ["true", "seconds"]
    columns = ["origin", "file", "form", "options"]
    return _table([*columns, "on a CPU", *of_device, "on a GPU", *of_device], rows)


def shares(record: dict[str, Any]) -> str:
    """Return how many third-party files were judged, and how many verdicts were true."""
    rows = []
    for device, title in (("cpu", "CPU"), ("cuda", "GPU")):
        found = [each for each in record["files"] if device in each]
        if not found:
            continue
        taken = [each for each in found if each[device]["verdict"] not in NOT_TAKEN]
        plain = [each for each in taken if "--call" not in each["options"]]
        true = [each for each in found if each[device]["true"]]
        total = len(found)
        rows.append(
            [
                title,
                str(total),
                str(len({each["origin"] for each in found})),
                f"{len(taken)} ({len(taken) / total:.0%})",
                str(len(plain)),
                f"{len(true)} ({len(true) / total:.0%})",
                f"{record[device]['machine']}, {record[device]['commit']}",
            ]
        )
    columns = [
        "device",
        "files",
        "origins",
        "taken",
        "without `--call`",
        "true verdicts",
        "machine",
    ]
    return _table(columns, rows)


NOT_TAKEN = ("NOT JUDGED", "DOES NOT BUILD")
"""Verdicts on files that the judge could not call."""


def reasons() -> str:
    """Return a row per code of a verdict's reason."""
    rows = [[code, code.word, code.meaning, code.advice] for code in Code if code in CODES]
    return _table(["code", "verdict", "what happened", "what to do"], rows)


def checks() -> str:
    """Return a row per check: what it tests, as its docstring says, and what it catches."""
    rows = []
    for name, check in CHECKS.items():
        title, *more = inspect.cleandoc(check.judge.__doc__ or "").split("\n\n")[:2]
        text = " ".join([title.removeprefix("Check "), *more]).replace("``", "`")
        rows.append([f"`{name}`", " ".join(text.split()), check.catches])
    return _table(["check", "what it tests", "what it catches"], rows)


def _beside_peers(run: Run) -> list[list[Cell]]:
    """Return the cells of each case and pass, of each table of the config that has peers in it."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells(run):
        if CUSTOM in cell and cell.peers:
            groups.setdefault((cell[CUSTOM].case.name, cell[CUSTOM].pass_), []).append(cell)
    return list(groups.values())


def _time(result: BenchResult) -> str:
    return format_seconds(result.seconds.median) if result.seconds else result.status


def _share(result: BenchResult) -> str:
    if result.impossible:
        return IMPOSSIBLE
    return f"{100 * result.limit_share:.1f}" if result.limit_share else ""


def _speedup(group: Sequence[Cell], peer: str) -> float | None:
    """Return a peer's median over losscli's, from the first table in which both have one."""
    return next((r for cell in group if (r := cell[CUSTOM].speedup.get(peer))), None)


def _peer(group: Sequence[Cell], peer: str) -> str:
    """Return a peer's time and the ratio; of another table than the first the ratio alone."""
    ratio = _speedup(group, peer)
    if not ratio:
        return ""
    first = group[0].get(peer)
    return f"{_time(first)} ({ratio:.2f}x)" if first and first.seconds else f"{ratio:.2f}x"


def _ratio(cell: Cell) -> float:
    """Return the best peer's time over losscli's."""
    peer = best_peer(cell)
    assert peer
    return ratio_to(cell[CUSTOM], peer)


def _worst(group: Sequence[Cell]) -> Cell:
    """Return the cell in which losscli is slowest against its peer."""
    untimed = [cell for cell in group if cell[CUSTOM].seconds is None]
    return untimed[0] if untimed else min(group, key=lambda c: (not c.slower_than, _ratio(c)))


def _is_slower_by_itself(cell: Cell) -> bool:
    """Tell whether the ratio to any peer has this verdict."""
    own = cell[CUSTOM].ratios
    return any(
        peer.implementation in own and own[peer.implementation].verdict == SLOWER
        for peer in cell.peers
    )


def _behind(losing: Iterable[Cell]) -> str:
    """Return which peers are faster, and by how much at most."""
    names: Counter[str] = Counter()
    most = 0.0
    for cell in losing:
        custom, peer = cell[CUSTOM].seconds, best_peer(cell)
        assert custom
        assert peer
        names[peer.implementation] += 1
        most = max(most, custom.median * (1 - _ratio(cell)))
    return f"behind {' and '.join(names)} by at most {format_seconds(most, 2)}"


def _axis(case: Case) -> str:
    """Return the layout and the incoming gradient if they are not the default."""
    words: list[str] = [case.layout] if case.layout != CONTIGUOUS else []
    words += [format_grad_output(case.grad_output)] if case.grad_output != 1 else []
    return " ".join(words)


def _elements(case: Case) -> str:
    power = case.elements.bit_length() - 1
    return f"2^{power}" if power and case.elements == 1 << power else str(case.elements)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table, without empty columns."""
    kept = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line[i] for i in kept)} |" for line in lines)


OF_CODE: dict[str, Callable[[str], str]] = {
    functions.__name__: functions,
    walls.__name__: lambda _: walls(),
    reasons.__name__: lambda _: reasons(),
    facets.__name__: lambda _: facets(),
    jobs.__name__: lambda _: jobs(),
    checks.__name__: lambda _: checks(),
}
"""Tables of what the code says, by kind; they take what stands in place of a file."""
OF_VERDICTS = {kind.__name__: kind for kind in (wild, shares)}
"""Tables of verdicts on third-party files, by kind."""
KINDS: dict[str, Callable[[Run], str]] = {
    kind.__name__: kind
    for kind in (
        environment,
        bench,
        losses,
        limits,
        floors,
        linear,
        sharded,
        rows,
        ratios,
        axes,
        slower,
        host,
        strategies,
    )
}


TESTED = (ratios.__name__, axes.__name__, slower.__name__)
"""Kinds of tables that depend on all cells."""
WHOLE = (*TESTED, environment.__name__, mutations.__name__)
"""Kinds of tables that show all layouts and incoming gradients."""
USUAL = {"layout": CONTIGUOUS, "grad_output": "1"}


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text()))
