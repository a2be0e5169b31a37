"""``losscli history``: the rows of saved runs over commits, and where they changed."""

from pathlib import Path

import click

from losscli.cli.options import COMPLETE_RUNS, examples, filter_option, find_inputs, output_options
from losscli.cli.variables import option
from losscli.config.schema import Filter
from losscli.console.notes import note
from losscli.errors import UsageError


@click.command("history")
@click.argument("names", nargs=-1, metavar="[RUN...]", shell_complete=COMPLETE_RUNS)
@option(
    "--over",
    "revisions",
    metavar="REVISIONS",
    help="Use only runs of these commits of the git repository here, in git's order: HEAD, "
    "v1.0..main.",
)
@filter_option
@output_options
@examples(
    "losscli history",
    "losscli history --over v1.0..HEAD --filter loss=mse,impl=custom,pass=forward",
    "losscli history monday.json tuesday.json --format md",
)
def command(
    names: tuple[str, ...],
    revisions: str | None,
    filters: tuple[Filter, ...],
    format: str,
    output: Path | None,
) -> None:
    """Show the rows of runs of `losscli bench` over commits, and the commits that changed them.

    A RUN is a result file, or the NAME of a run that `losscli bench --save NAME` saved; by
    default all saved runs. The statistics of `losscli compare` find the commit of a change; with
    99 % confidence all changes of a history are real.

    Exit codes: 2 there is no run, or none that matches, 4 the output cannot be written.
    """
    from losscli.compare.history import history
    from losscli.config.expansion import keeps, row_of
    from losscli.machine.commits import git
    from losscli.render.records import write
    from losscli.runs.reading import read_run
    from losscli.runs.records import BenchResult
    from losscli.runs.saved import runs_directory, saved_runs

    paths = find_inputs(names, output, otherwise=saved_runs)
    order = None
    if revisions is not None:  # the oldest commit first
        order = git(Path(), "rev-list", "--reverse", "--topo-order", revisions, "--").split()
    runs = {}
    for name, path in paths.items():
        try:
            runs[name] = read_run(path, "bench")
        except UsageError as error:
            if names:
                raise
            note(f"left out {name}: {error}")
    if not runs:
        raise UsageError(f"no runs in {runs_directory()}. `losscli bench --save NAME` saves one.")

    def kept(result: BenchResult) -> bool:
        row = row_of(result.case, result.implementation, result.pass_, result.table)
        return keeps(filters, row)

    found = history(runs, order, kept)
    if not found.commits:
        raise UsageError(f"none of {len(runs)} runs is of a commit of {revisions}.")
    if not found.series:
        raise UsageError("--filter matches no row. `losscli history` without it lists the rows.")
    write(found, format, output)
    if output:
        note(f"wrote {output}")
