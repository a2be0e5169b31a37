"""``losscli bisect``: finds the commit since which a case is slower or takes more memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from losscli.axes import PASSES
from losscli.cli.options import (
    axis,
    device_option,
    examples,
    listing_format,
    named_axis,
)
from losscli.cli.variables import option
from losscli.compare.figures import ENERGY, TIME, limits_of, read_limit
from losscli.config.case_name import config_of_case
from losscli.config.fields import check_name, check_processes
from losscli.errors import EXIT_OK, UnfitError, UsageError
from losscli.implementations import CUSTOM, IMPLEMENTATIONS, is_file
from losscli.implementations.files import path_of
from losscli.notes import note
from losscli.report.output import show
from losscli.runs.encoding import finite, json_line
from losscli.runs.unprinted import kept
from losscli.streams import emit
from losscli.units import parse_seconds

if TYPE_CHECKING:
    from losscli.compare.bisect import Measure
    from losscli.compare.revisions import Bench

LIMITS = {TIME: 0.05, "memory": 0.0}
"""What is a regression where no limit is given."""


@click.command("bisect")
@click.argument("case", metavar="CASE")
@option("--good", required=True, metavar="REV", help="Begin at REV, which is as it should be.")
@option("--bad", required=True, metavar="REV", help="End at REV, which is worse.")
@option(
    "--impl",
    "implementation",
    default=CUSTOM,
    show_default=True,
    metavar="NAME",
    help="Measure this implementation of losscli's own repository, or a file of yours in its "
    "repository: FILE.py or FILE.py:FUNCTION.",
)
@axis(
    "--fail-on",
    "limits",
    "LIMIT",
    read_limit,
    "Search for more than LIMIT: time=5% and memory=0 by default, error=1ulp, energy=10%.",
)
@named_axis("--pass", "passes", "pass", PASSES)
@device_option()
@option(
    "--max-time", type=parse_seconds, metavar="TIME", help="Sample each revision for at most TIME."
)
@option(
    "--processes",
    type=check_processes,
    metavar="N",
    help="Sample each revision in N fresh processes, as `losscli bench` does.",
)
@listing_format(help="Write the result as table or json.")
@examples(
    "losscli bisect 'mse 4Kx4K float32 mean' --good v1.0 --bad HEAD --impl kernel.py",
    "losscli bisect 'huber 1Kx1K' --good v1.0 --bad main --pass forward --fail-on time=10%",
)
def command(
    case: str,
    good: str,
    bad: str,
    implementation: str,
    limits: Sequence[tuple[str, float]],
    format: str,
    **options: Any,
) -> int:
    """Find the commit since which CASE is slower or takes more memory.

    CASE is a name as `losscli bench --list` prints it: 'mse 1024x1024 float32 mean'. Revisions are
    checked out in clones and measured by `losscli bench` beside the good one, as `git bisect` asks
    for them; your checkout stays as it is. One that does not build or is wrong is skipped.

    Exit codes: 2 a revision is not there or cannot be measured, or --bad is not worse than --good,
    4 there is no repository, or no git, 130 interrupted.
    """
    config = config_of_case(case)
    by_figure = limits_of(limits) or LIMITS
    if ENERGY in by_figure:
        config = {**config, "columns": [ENERGY]}
    if not is_file(implementation):
        check_name("implementation", implementation, IMPLEMENTATIONS)
    from losscli.compare.bisect import Bisect
    from losscli.compare.revisions import Bench
    from losscli.machine.bisection import Range
    from losscli.report.bisect import lines_of, record_of

    place = _place(implementation)
    span = Range.of(place.repository, good, bad)
    with tempfile.TemporaryDirectory(prefix="losscli-bisect-") as made:
        folder = Path(made).resolve()
        bench = Bench(config, _options(options), folder)
        bench.require_fit("reference" if place.path else implementation)
        checkouts = [span.clone(folder / end, span.good) for end in ("good", "other")]
        note(f"{len(span.commits())} commits after {good} in {place.repository}")
        measure = _measurer(implementation, place, bench, checkouts[0])
        search = Bisect(span, checkouts[1], measure, by_figure, note)
        found = search.culprits()
    record = record_of(case, implementation, search, found)
    with kept("bisect", lambda: json_line(record)):
        if format == "json":
            emit(json.dumps(finite(record), indent=2))
        else:
            show("\n".join(lines_of(case, implementation, search, found)))
    return EXIT_OK


class Place(NamedTuple):
    """A repository, and of a file its path inside and what follows the path."""

    repository: Path
    path: Path | None = None
    name: str = ""


def _place(implementation: str) -> Place:
    """Return where the revisions of an implementation are."""
    from losscli.machine.commits import git
    from losscli.machine.description import SOURCES

    if not is_file(implementation):
        if not (SOURCES / ".git").exists():
            raise UnfitError(
                f"losscli in {SOURCES} is no checkout of its repository, so it has no revisions. "
                "Install it from one with `pip install -e .`, or name a FILE.py with --impl."
            )
        return Place(SOURCES)
    path = path_of(implementation)
    name = implementation.removeprefix(str(path))
    if name.startswith("@"):
        raise UsageError(f"--impl {implementation}: the revisions are those of --good and --bad.")
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory '{path.parent}'.")
    folder = path.parent.resolve()
    repository = Path(git(folder, "rev-parse", "--show-toplevel")).resolve()
    return Place(repository, folder.relative_to(repository) / path.name, name)


def _measurer(implementation: str, place: Place, bench: Bench, good: Path) -> Measure:
    """Return what measures a checkout beside the good one."""
    from losscli.compare.revisions import FileRevisions, OwnRevisions

    if place.path is None:
        return OwnRevisions(bench, good, implementation).measure
    return FileRevisions(bench, good, place.path, place.name).measure


def _options(given: dict[str, Any]) -> list[str]:
    """Return the options of `losscli bench` that were given."""
    words = []
    for name, value in given.items():
        flag = {"passes": "--pass"}.get(name, f"--{name.replace('_', '-')}")
        if value not in (None, ()):
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words
