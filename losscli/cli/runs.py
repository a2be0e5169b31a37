"""``losscli runs``: lists the runs that ``losscli bench --save NAME`` saved."""

from __future__ import annotations

import json
from pathlib import Path

import click

from losscli.cli.options import listing_format
from losscli.errors import UsageError
from losscli.report.tables import lay_out
from losscli.runs.saved import runs_directory, saved_runs

_NONE = "no runs in {}. `losscli bench --save NAME` saves one."


@click.command("runs")
@listing_format
def command(format: str) -> None:
    """List the runs that `losscli bench --save NAME` saved, the oldest first.

    The runs are files in $LOSSCLI_DATA_DIR, or in losscli in the user's data directory.
    """
    runs = [_describe(name, path) for name, path in saved_runs().items()]
    if format == "json":
        click.echo(json.dumps(runs, indent=2))
    elif not runs:
        click.echo(_NONE.format(runs_directory()), err=True)
    else:
        keys = ("name", "created", "device", "cases", "commit", "problem")
        shown = keys if any(run["problem"] for run in runs) else keys[:-1]
        rows = [["" if run[key] is None else str(run[key]) for key in shown] for run in runs]
        click.echo(lay_out(shown, rows, align=["left"] * len(shown)))


def _describe(name: str, path: Path) -> dict[str, object]:
    """Return the facts of a run, or why its file cannot be read."""
    from losscli.runs.reading import read_run
    from losscli.runs.records import BenchResult

    facts: dict[str, object] = {"name": name, "path": str(path)}
    try:
        run = read_run(path, "bench")
    except UsageError as error:
        unknown = dict.fromkeys(("created", "device", "cases", "commit"))
        return facts | unknown | {"problem": str(error)}
    machine = run.environment
    cases = [result.case for result in run.results if isinstance(result, BenchResult)]
    return facts | {
        "created": run.created,
        "device": machine.get("gpu") or machine.get("cpu") or machine.get("device"),
        "cases": len(set(cases)),
        "commit": machine.get("commit"),
        "problem": None,
    }
