"""``losscli export``: writes a bench run in the format of another tool."""

from pathlib import Path

import click

from losscli.cli.options import COMPLETE_RUNS, examples, find_inputs, named_option, output_option
from losscli.console.notes import note
from losscli.errors import UsageError


@click.command("export")
@click.argument("name", metavar="RUN", shell_complete=COMPLETE_RUNS)
@named_option(
    *("--format", ("bencher", "github", "openmetrics")),
    "Write bencher (Bencher Metric Format), github (github-action-benchmark, "
    "customSmallerIsBetter) or openmetrics.",
    required=True,
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

    run = read_run(find_inputs([name], output)[name], "bench")
    if not timed(run):
        raise UsageError(f"nothing was timed in {name}. `losscli runs show` shows why.")
    write_report(EXPORTS[format](run), format, output)
    if output:
        note(f"wrote {output}")
