"""``losscli compare``: runs against a baseline, and whether anything became slower."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from losscli.cli.options import output_options
from losscli.errors import EXIT_FAILED, EXIT_OK, UnfitError, UsageError
from losscli.runs.files import is_replaceable, replace_file
from losscli.units import parse_fraction


@click.command("compare")
@click.argument("names", nargs=-1, metavar="BASE NEW...")
@click.option(
    "--fail-on",
    "threshold",
    type=parse_fraction,
    metavar="FRACTION",
    help="Exit with 1 if a case is slower by more than this, 5% say, and than noise explains.",
)
@click.option("--force", is_flag=True, help="Compare runs of machines that do not compare.")
@output_options
def command(
    names: tuple[str, ...], threshold: float | None, force: bool, format: str, output: Path | None
) -> int:
    """Compare runs of `losscli bench` with a baseline, the first.

    Each is a result in JSON or JSONL, or a run kept by `losscli bench --save NAME`.

    Exit codes: 2 a run is missing or cannot be compared, 4 the output cannot be written; with
    --fail-on also 1 a case is slower beyond it and the noise, or failed that BASE timed.
    """
    if len(names) < 2:
        raise UsageError("name a baseline and at least one other run: losscli compare BASE NEW.")

    from losscli.garbage import without_garbage_collection

    with without_garbage_collection():
        return _compare(names, threshold, force, format, output)


def _compare(
    names: Sequence[str], threshold: float | None, force: bool, format: str, output: Path | None
) -> int:
    """Read, compare and report; numpy is imported only here."""
    from losscli.compare.comparison import TOLERATED, Comparisons, compare
    from losscli.compare.unmatched import why_unmatched
    from losscli.report import comparison as reports
    from losscli.report import step_summary
    from losscli.runs.reading import read_run
    from losscli.runs.saved import find_run

    paths = {name: find_run(name) for name in names}
    if output:
        _refuse_to_overwrite(output, paths)
    baseline, *others = [(name, read_run(paths[name], "bench")) for name in names]
    tolerated = TOLERATED if threshold is None else threshold
    found = {name: compare(baseline[1], run, tolerated) for name, run in others}
    for name, comparison in found.items():
        if not comparison.comparable and not force:
            unlike = next(d for d in comparison.differences if d.decisive)
            raise UsageError(
                f"{baseline[0]} and {name} do not compare: another {unlike}. --force compares all "
                "the same."
            )
        if not comparison.rows and not comparison.broken:
            why = why_unmatched(*baseline, name, comparison.after)
            raise UsageError(f"{baseline[0]} and {name} have no timed case in common. {why}")
    compared = Comparisons(baseline[0], found, threshold)
    _write(reports.render_comparison(compared, format), output)
    step_summary.publish("compare", lambda: reports.render_comparison(compared, "md"))
    if output:
        click.echo(f"{reports.conclusion(compared)}\n\nlosscli: wrote {output}", err=True)
    if threshold is None:
        return EXIT_OK
    if compared.regressions() or compared.broken():
        return EXIT_FAILED
    if blind := compared.blind():
        click.echo(
            f"losscli: no row of {', '.join(blind)} could be told to be slower by "
            f"{100 * threshold:g} %. Measure on a quieter machine, take more samples, have "
            "`custom` as well as `reference` and `functional` in the config, or give a larger "
            "--fail-on.",
            err=True,
        )
    return EXIT_OK


def _refuse_to_overwrite(output: Path, paths: Mapping[str, Path]) -> None:
    """Refuse an output that is one of the runs: a report is no result to compare again."""
    for name, path in paths.items():
        if os.path.exists(output) and os.path.samefile(output, path):
            raise UsageError(f"-o '{output}' is the run '{name}' itself. Name another file.")


def _write(text: str, output: Path | None) -> None:
    """Put the report where it goes, into a file as a whole."""
    if output is None:
        click.echo(text)
        return
    try:
        if is_replaceable(output):
            replace_file(output.resolve(), [text])
        else:
            output.write_text(f"{text}\n", encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnfitError(f"cannot write {output}: {error.strerror}.") from None
