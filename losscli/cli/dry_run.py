"""What ``--dry-run`` prints: the cases of a config, their bytes, and whether they fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import click
from tabulate import tabulate

from losscli.bench.memory import MemoryPlan, planned_extra_bytes
from losscli.cases import Case, asked_for, expand
from losscli.config.schema import Config
from losscli.implementations import Implementation, find_implementation
from losscli.report.bench_table import SHORT_PASSES
from losscli.units import format_bytes

DOES_NOT_FIT = "does not fit"

Fit = Callable[
    [Case, str, Sequence[Implementation], int], tuple[list[Implementation], dict[str, str]]
]
"""``f(case, pass, implementations, free)``: those that fit, and why the others, by name, do not."""
NeededBytes = Callable[[Case, str, Sequence[Implementation]], int]
"""``f(case, pass, implementations)``: the most bytes that running them takes, inputs included."""
PlanMemory = Callable[[Case, str, Sequence[Implementation]], MemoryPlan]
"""``f(case, pass, implementations)``: what these bytes are for."""


def print_cases(
    config: Config,
    device: str,
    needed: NeededBytes,
    fit: Fit,
    free: int,
    plan: PlanMemory | None = None,
) -> None:
    """Print a row for each case and pass: what would run, its bytes, and what does not fit.

    With a plan, it is a row for each implementation, and says what the bytes are for.
    """
    rows: list[tuple[str, ...]] = []
    sizes, misfits = [], 0
    for case, pass_, implementations in _plan(config, device):
        able, left_out = fit(case, pass_, implementations, free)
        size = needed(case, pass_, able or implementations)
        if plan:
            parts = plan(case, pass_, able or implementations)
            rows += _planned(case, pass_, implementations, able, parts)
        else:
            fits = f"left out: {', '.join(left_out)}" if able and left_out else ""
            names = ", ".join(implementation.name for implementation in able or implementations)
            fits = fits if able else DOES_NOT_FIT
            rows.append((case.name, pass_, names, format_bytes(size), fits))
        sizes.append(size)
        misfits += bool(left_out)
    amounts = ("inputs", "outputs", "temporaries") if plan else ()
    headers = ("case", "pass", "impl" if plan else "implementations", *amounts, "bytes", "")
    align = (*["left"] * 3, *["right"] * len(amounts), "right", "left")
    click.echo(tabulate(rows, headers, colalign=align))
    click.echo(
        f"{len(sizes)} to run, the largest {format_bytes(max(sizes, default=0))}; "
        f"{misfits or 'none'} too large for the "
        f"{format_bytes(free)} free on {device}"
    )


def _planned(
    case: Case,
    pass_: str,
    implementations: Sequence[Implementation],
    able: Sequence[Implementation],
    parts: MemoryPlan,
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each implementation, the first with what they have in common."""
    shared = map(format_bytes, (parts.inputs, parts.outputs, parts.total))
    inputs, outputs, total = shared
    names = (case.name, SHORT_PASSES[pass_])
    for implementation in implementations:
        held = format_bytes(planned_extra_bytes(case, implementation))
        fits = "" if implementation in able else DOES_NOT_FIT
        yield (*names, implementation.name, inputs, outputs, held, total, fits)
        names, inputs, outputs, total = ("", ""), "", "", ""


def print_names(config: Config, device: str) -> None:
    """Print the name of each case that is left, a line each."""
    for name in dict.fromkeys(case.name for case, _, _ in _plan(config, device)):
        click.echo(name)


def _plan(config: Config, device: str) -> Iterator[tuple[Case, str, list[Implementation]]]:
    """Yield what runs side by side: a case, a pass, and its implementations."""
    for block in config.blocks:
        for case, pass_ in itertools.product(expand(block, device), block.passes):
            implementations = [
                find_implementation(name)
                for name in block.implementations
                if asked_for(block, case, name, pass_)
            ]
            able = [i for i in implementations if i.unavailable(case) is None]
            if able:
                yield case, pass_, able
