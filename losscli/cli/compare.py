"""``losscli compare``: compares runs with a baseline."""

import math
from collections.abc import Sequence
from pathlib import Path

import click

from losscli.cli.options import COMPLETE_RUNS, axis, examples, find_inputs, output_options
from losscli.cli.variables import option, switch
from losscli.compare.metrics import TIME, limits_of, read_limit
from losscli.console.notes import note, say
from losscli.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFIT, UsageError


@click.command("compare")
@click.argument("names", nargs=-1, metavar="BASE NEW...", shell_complete=COMPLETE_RUNS)
@axis(
    "--fail-on",
    "limits",
    "LIMIT",
    read_limit,
    "Exit with 1 if a row exceeds LIMIT compared with BASE: time=5% (or 5%) is for a row that is "
    "slower by more than 5% and beyond the measured noise, memory=0 or memory=1MiB for more "
    "temporary memory, energy=10% for more energy, error=1ulp for a larger error.",
)
@option(
    "--fail-on-missing/--no-fail-on-missing",
    "missing",
    default=None,
    help="Exit with 1 if NEW did not time a row that BASE timed. On by default with --fail-on for "
    "the rows of losscli's own implementations (custom*); if given explicitly, for every row.",
)
@option(
    "--fail-on-undecided/--no-fail-on-undecided",
    "undecided",
    default=None,
    help="Exit with 1 if noise can hide a slowdown by LIMIT, or NEW lacks a metric that has a "
    "limit. On by default for the same rows as --fail-on-missing.",
)
@switch("--force", help="Compare runs even if their machines differ.")
@output_options
@examples(
    "losscli compare before after",
    "losscli compare before after --fail-on 5%",
    "losscli compare before after --fail-on time=5%,memory=0,error=1ulp",
    "losscli compare base.json new.json --format md -o comparison.md",
)
def command(
    names: tuple[str, ...],
    limits: Sequence[tuple[str, float]],
    missing: bool | None,
    undecided: bool | None,
    force: bool,
    format: str,
    output: Path | None,
) -> int:
    """Compare each run NEW of `losscli bench` with the run BASE.

    A run is a result file in JSON or JSONL, or the NAME of a run that `losscli bench --save NAME`
    saved.

    Exit codes: 1 a row is slower, larger, failed, missing or undecided (see the --fail-on options),
    2 a run is missing or cannot be compared, 4 rows have to be measured again because other
    programs disturbed them, or the output cannot be written.
    """
    if len(names) < 2:
        raise UsageError("name at least two runs: losscli compare BASE NEW.")

    by_metric = limits_of(limits)
    if undecided and not by_metric:
        raise UsageError("--fail-on-undecided needs a limit. Add --fail-on LIMIT, e.g. 5%.")

    from losscli.compare.comparison import TOLERATED, compare
    from losscli.compare.gate import Comparisons, FailOn
    from losscli.compare.row_keys import why_unmatched
    from losscli.render.output import publish
    from losscli.render.records import conclusion, render, write
    from losscli.runs.reading import read_run

    paths = find_inputs(names, output)
    baseline, *others = [(name, read_run(paths[name], "bench")) for name in names]
    tolerated = by_metric.get(TIME, TOLERATED)
    threshold = by_metric.pop(TIME, math.inf)
    found = {name: compare(baseline[1], run, tolerated) for name, run in others}
    for name, comparison in found.items():
        if not comparison.comparable and not force:
            unlike = next(d for d in comparison.differences if d.decisive)
            said = f"{baseline[0]} and {name} cannot be compared: different {unlike}."
            raise UsageError(f"{said} Add --force to compare them anyway.")
        if not comparison.rows and not comparison.broken:
            why = why_unmatched(*baseline, name, comparison.after)
            raise UsageError(f"{baseline[0]} and {name} have no timed case in common. {why}")
    compared = Comparisons(baseline[0], found, FailOn(threshold, missing, undecided, by_metric))
    write(compared, format, output)
    if compared.has_changes:  # a summary that always says the same is not read
        publish("compare", lambda: render(compared, "md"))
    if output:
        say(f"{conclusion(compared)}\n")
        note(f"wrote {output}")
    if compared.undecided() or compared.blind():
        note(
            "to decide these rows, measure on a quieter machine, take more samples, have "
            "`reference` and `functional` as well as `custom` in the config, or give a larger "
            "--fail-on."
        )
    if compared.failed:
        return EXIT_FAILED
    return EXIT_UNFIT if compared.disturbed() else EXIT_OK
