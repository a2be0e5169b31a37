"""What ``--dry-run`` prints: the cases of a config, their bytes, and whether they fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import click
from tabulate import tabulate

from losscli.bench.memory import MemoryPlan, fit, plan_memory
from losscli.bench.plan import unavailable
from losscli.cases import Case, asked_for, expand
from losscli.config.schema import Config
from losscli.implementations import Implementation, find_implementation
from losscli.report.bench_table import SHORT_PASSES
from losscli.report.phrases import with_mode
from losscli.units import format_bytes

DOES_NOT_FIT = "does not fit"

Fit = Callable[
    [Case, str, Sequence[Implementation], int], tuple[list[Implementation], dict[str, str]]
]
"""``f(case, pass, implementations, free)``: those that fit, and why the others, by name, do not."""
NeededBytes = Callable[[Case, str, Sequence[Implementation]], int]
"""``f(case, pass, implementations)``: the most bytes that running them takes, inputs included."""


def print_cases(config: Config, device: str, needed: NeededBytes, fit: Fit, free: int) -> None:
    """Print a row for each case and pass: what would run, its bytes, and what does not fit."""
    rows, sizes, misfits = [], [], 0
    for case, pass_, implementations, _ in _plan(config, device):
        if case.impossible:
            rows.append((case.name, pass_, _names(implementations), "", case.impossible))
            continue
        able, left_out = fit(case, pass_, implementations, free)
        size = needed(case, pass_, able or implementations)
        fits = f"left out: {', '.join(left_out)}" if able and left_out else ""
        fits = fits if able else DOES_NOT_FIT
        rows.append((case.name, pass_, _names(able or implementations), format_bytes(size), fits))
        sizes.append(size)
        misfits += bool(left_out)
    click.echo(tabulate(rows, ("case", "pass", "implementations", "bytes", ""), colalign=_ALIGN))
    click.echo(_count(sizes, misfits, free, device))


_ALIGN = (*["left"] * 3, "right", "left")
_PLAN_ALIGN = (*["left"] * 3, *["right"] * 4, "left")
_PLAN_HEADERS = ("case", "pass", "impl", "inputs", "outputs", "temporaries", "bytes", "")


def print_plans(config: Config, device: str, free: int) -> None:
    """Print what each case, pass and mode is planned to take to be timed, and what for.

    It is a row for each implementation, or one that says why a mode is not there.
    """
    rows: list[tuple[str, ...]] = []
    sizes, misfits = [], 0
    for case, pass_, implementations, modes in _plan(config, device):
        for mode in modes:
            name = with_mode(SHORT_PASSES[pass_], mode)
            if why := case.impossible or unavailable(mode, device):
                rows.append((case.name, name, _names(implementations), *[""] * 4, why))
                continue
            able, left_out = fit(case, pass_, implementations, free, mode)
            parts = plan_memory(case, pass_, able or implementations, mode)
            rows += _planned(case, name, implementations, able, parts)
            sizes.append(parts.total)
            misfits += bool(left_out)
    click.echo(tabulate(rows, _PLAN_HEADERS, colalign=_PLAN_ALIGN))
    click.echo(_count(sizes, misfits, free, device))


def _planned(
    case: Case,
    pass_: str,
    implementations: Sequence[Implementation],
    able: Sequence[Implementation],
    parts: MemoryPlan,
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each implementation, the first with what they have in common."""
    inputs, outputs, total = map(format_bytes, (parts.inputs, parts.outputs, parts.total))
    names = (case.name, pass_)
    for implementation in implementations:
        held = format_bytes(implementation.temporary_bytes(case))
        fits = "" if implementation in able else DOES_NOT_FIT
        yield (*names, implementation.name, inputs, outputs, held, total, fits)
        names, inputs, outputs, total = ("", ""), "", "", ""


def _names(implementations: Sequence[Implementation]) -> str:
    return ", ".join(implementation.name for implementation in implementations)


def _count(sizes: Sequence[int], misfits: int, free: int, device: str) -> str:
    """Return the last line: how many there are, and of them too large."""
    return (
        f"{len(sizes)} to run, the largest {format_bytes(max(sizes, default=0))}; "
        f"{misfits or 'none'} too large for the {format_bytes(free)} free on {device}"
    )


def print_names(config: Config, device: str) -> None:
    """Print the name of each case that is left, a line each."""
    for name in dict.fromkeys(case.name for case, *_ in _plan(config, device)):
        click.echo(name)


def _plan(
    config: Config, device: str
) -> Iterator[tuple[Case, str, list[Implementation], tuple[str, ...]]]:
    """Yield what runs side by side: a case, a pass, its implementations, and the modes of each."""
    for block in config.blocks:
        for case, pass_ in itertools.product(expand(block, device), block.passes):
            implementations = [
                find_implementation(name)
                for name in block.implementations
                if asked_for(block, case, name, pass_)
            ]
            able = [i for i in implementations if i.unavailable(case) is None]
            if able:
                yield case, pass_, able, block.timing.mode
