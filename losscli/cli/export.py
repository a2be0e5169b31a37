"""``losscli export``: writes a bench run in the format of another tool."""

from pathlib import Path

import click

from losscli.cli.completion import OneOf
from losscli.cli.options import COMPLETE_RUNS, examples, output_option
from losscli.cli.variables import option
from losscli.console.notes import note
from losscli.errors import UsageError
from losscli.runs.files import refuse_to_overwrite


@click.command("export")
@click.argument("name", metavar="RUN", shell_complete=COMPLETE_RUNS)
@option(
    "--format",
    type=OneOf("format", ("bencher", "github", "openmetrics")),
    required=True,
    help="Write bencher (Bencher Metric Format), github (github-action-benchmark, "
    "customSmallerIsBetter) or openmetrics.",
)
@output_option
@examples(
    "losscli export base --format bencher -o bencher.json",
    "losscli export new.json --format github -o benchmark.json",
    "losscli export new.json --format openmetrics -o losscli.prom",
)
def command(name: str, format: str, output: Path | None) -> None:
    """Write a run of `losscli bench` for another tool: times, memory and errors of each row.

    A RUN is a result file in JSON or JSONL, or the NAME of a run that `losscli bench --save NAME`
    saved. Rows without a time are left out.

    Exit codes: 2 there is no such run, or it has no times, 4 the output cannot be written.
    """
    from losscli.compare.row_keys import timed
    from losscli.render.exports import EXPORTS
    from losscli.render.output import write_report
    from losscli.runs.reading import read_run
    from losscli.runs.saved import find_run

    path = find_run(name)
    refuse_to_overwrite(output, "run", {name: path})
    run = read_run(path, "bench")
    if not timed(run):
        raise UsageError(f"nothing was timed in {name}. `losscli runs show` shows why.")
    write_report(EXPORTS[format](run), format, output)
    if output:
        note(f"wrote {output}")
