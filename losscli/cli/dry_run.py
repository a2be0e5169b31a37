"""What ``--dry-run`` prints: the cases of a config, their bytes, and whether they fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import click
from tabulate import tabulate

from losscli.cases import Case, asked_for, expand
from losscli.config.schema import Config
from losscli.implementations import Implementation, find_implementation
from losscli.units import format_bytes

Fit = Callable[
    [Case, str, Sequence[Implementation], int], tuple[list[Implementation], dict[str, str]]
]
"""``f(case, pass, implementations, free)``: those that fit, and why the others, by name, do not."""
NeededBytes = Callable[[Case, str, Sequence[Implementation]], int]
"""``f(case, pass, implementations)``: the most bytes that running them takes, inputs included."""


def print_cases(config: Config, device: str, needed: NeededBytes, fit: Fit, free: int) -> None:
    """Print a row for each case and pass: what would run, its bytes, and what does not fit."""
    rows, sizes, misfits = [], [], 0
    for case, pass_, implementations in _plan(config, device):
        able, left_out = fit(case, pass_, implementations, free)
        size = needed(case, pass_, able or implementations)
        fits = f"left out: {', '.join(left_out)}" if able and left_out else ""
        names = ", ".join(implementation.name for implementation in able or implementations)
        rows.append((case.name, pass_, names, format_bytes(size), fits if able else "does not fit"))
        sizes.append(size)
        misfits += bool(left_out)
    headers = ("case", "pass", "implementations", "bytes", "")
    click.echo(tabulate(rows, headers, colalign=("left", "left", "left", "right", "left")))
    click.echo(
        f"{len(rows)} to run, the largest {format_bytes(max(sizes, default=0))}; "
        f"{misfits or 'none'} too large for the "
        f"{format_bytes(free)} free on {device}"
    )


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
