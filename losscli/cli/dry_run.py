"""What ``--dry-run`` prints: the cases of a config, their bytes, and whether they fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click
from tabulate import tabulate

from losscli.cases import Case, excluded, expand
from losscli.config.schema import Config
from losscli.implementations import Implementation, find_implementation
from losscli.units import format_bytes

NeededBytes = Callable[[Case, str, Sequence[Implementation]], int]
"""``f(case, pass, implementations)``: the most bytes that running them takes, inputs included."""


def print_cases(
    config: Config, device: str, passes: Sequence[str], needed: NeededBytes, free: int
) -> None:
    """Print a row for each case and pass, with the bytes it needs against those that are free."""
    rows, sizes = [], []
    for case, pass_, implementations in _plan(config, device, passes):
        size = needed(case, pass_, implementations)
        names = ", ".join(implementation.name for implementation in implementations)
        fits = "" if size <= free else "does not fit"
        rows.append((case.name, pass_, names, format_bytes(size), fits))
        sizes.append(size)
    headers = ("case", "pass", "implementations", "bytes", "")
    click.echo(tabulate(rows, headers, colalign=("left", "left", "left", "right", "left")))
    misfits = sum(size > free for size in sizes)
    click.echo(
        f"{len(rows)} to run, the largest {format_bytes(max(sizes, default=0))}; "
        f"{misfits or 'none'} too large for the {format_bytes(free)} free on {device}"
    )


def _plan(
    config: Config, device: str, passes: Sequence[str]
) -> Iterator[tuple[Case, str, list[Implementation]]]:
    """Yield what runs side by side: a case, a pass, and its implementations."""
    for case in expand(config, device):
        for pass_ in passes:
            implementations = [
                find_implementation(name)
                for name in config.implementations
                if not excluded(config.exclude, case, name, pass_)
            ]
            able = [i for i in implementations if i.unavailable(case) is None]
            if able:
                yield case, pass_, able
