"""`losscli runs`: lists, shows, removes and merges saved runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from losscli.cli import options
from losscli.cli.completion import OneOf, listed
from losscli.cli.variables import switch
from losscli.config.fields import check_name
from losscli.console.notes import note, say
from losscli.console.streams import emit
from losscli.errors import UnfitError, UsageError
from losscli.render.output import width
from losscli.render.text import text
from losscli.runs.files import holder_of, is_replaceable
from losscli.runs.journal import output_of
from losscli.runs.saved import SUFFIX, killed_runs, runs_directory, saved_runs
from losscli.views.document import Table

LIST, SHOW, REMOVE, MERGE = ACTIONS = ("list", "show", "rm", "merge")
FINISHED, KILLED, RUNNING = "finished", "killed", "running"
_NONE = "no runs in {}. `losscli bench --save NAME` saves one."


def _runs() -> dict[str, Path]:
    """Return the file of each run, or its journal where it has no report."""
    saved = saved_runs()
    return saved | {n: path for n, path in killed_runs().items() if n not in saved}


@click.command("runs")
@click.argument("action", type=OneOf("action", ACTIONS), default=LIST, metavar="[list")
@click.argument(
    "names",
    nargs=-1,
    metavar="| show NAME | rm NAME... | merge RUN...]",
    shell_complete=listed(_runs),
)
@options.listing_format(
    options.FORMATS, "Write the list as table or json, a run also as md, csv or jsonl."
)
@options.columns_option
@options.verbose_option
@switch("--mixed", help="Let merge join runs of different machines; each time names its machine.")
@options.output_option
@options.examples(
    "losscli runs",
    "losscli runs show before --format md",
    "losscli runs rm before after",
    "losscli runs merge part1.json part2.json part3.json -o all.json",
)
def command(
    action: str,
    names: tuple[str, ...],
    columns: tuple[str, ...],
    verbose: bool,
    mixed: bool,
    format: str,
    output: Path | None,
) -> None:
    """List the runs that `losscli bench --save NAME` saved, show the report of one, or remove some.

    Or merge the runs of `losscli bench --part K/N` or `verify --part K/N`, files or names, into one
    record: JSON, or JSONL if -o ends in .jsonl. If parts are missing, the record lists
    the parts that it has.

    The list has the oldest run first. A run that was killed has the cases that were finished;
    `losscli bench --resume NAME --save NAME`, with its options, continues it.

    The runs are files in $LOSSCLI_DATA_DIR, or in losscli in the user's data directory.
    """
    if mixed and action != MERGE:
        raise UsageError(f"--mixed is for `losscli runs merge`, not for `losscli runs {action}`.")
    if action == LIST:
        _list(names, format, output)
    elif action == SHOW:
        _show(names, format, output, columns=columns, verbose=verbose)
    elif action == MERGE:
        _merge(names, format, output, mixed=mixed)
    else:
        _remove(names)


def _list(names: Sequence[str], format: str, output: Path | None) -> None:
    if names or output:
        given = f"'{names[0]}'" if names else "-o"
        raise UsageError(f"losscli runs list takes no {given}. Did you mean `losscli runs show`?")
    if format not in ("table", "json"):
        raise UsageError(f"the list is written as table or json, not as {format}.")
    runs = [_describe(name, path) for name, path in _runs().items()]
    if format == "json":
        emit(json.dumps(runs, indent=2))
    elif not runs:
        note(_NONE.format(runs_directory()))
    else:
        keys = ["name", "state", "created", "device", "cases", "commit", "problem"]
        if all(run["state"] == FINISHED for run in runs):
            keys.remove("state")
        if not any(run["problem"] for run in runs):
            keys.remove("problem")
        rows = [["" if run[key] is None else str(run[key]) for key in keys] for run in runs]
        least = ("commit", "device", "cases", "created")
        emit(text((Table(keys, rows, align=["left"] * len(keys), least=least),), width()))


def _describe(name: str, path: Path) -> dict[str, object]:
    from losscli.runs.reading import read_run
    from losscli.runs.records import BenchResult

    found: dict[str, object] = {"name": name, "path": str(path), "state": _state(name)}
    found |= dict.fromkeys(("created", "device", "cases", "commit", "problem"))
    try:
        run = read_run(path, "bench")
    except UsageError as error:
        return found | {"problem": str(error)}
    machine = run.environment
    return found | {
        "created": run.created,
        "device": machine.get("gpu") or machine.get("cpu") or machine.get("device"),
        "cases": len({result.case for result in run.of(BenchResult)}),
        "commit": machine.get("commit"),
    }


def _state(name: str) -> str:
    if (journal := killed_runs().get(name)) is None:
        return FINISHED
    if holder_of(output_of(journal)):
        return RUNNING
    return "finished, a later one was killed" if name in saved_runs() else KILLED


def _show(names: Sequence[str], format: str, output: Path | None, **shown: Any) -> None:
    if len(names) != 1:
        raise UsageError("name one run: losscli runs show NAME.")
    from losscli.render.records import write
    from losscli.runs.reading import read_run

    (name,) = names
    run, state = read_run(_find(name), "bench"), _state(name)
    if not run.results:
        raise UsageError(f"the run '{name}' was killed before its first result.")
    write(run, format, output, **shown)
    if state == KILLED:
        note(f"this run was killed; `losscli bench --resume {name} --save {name}` continues it")
    elif state == RUNNING:
        note("this run is not finished; these are its results so far")


def _merge(names: Sequence[str], format: str, output: Path | None, *, mixed: bool) -> None:
    if not names:
        raise UsageError("name the parts to join: losscli runs merge RUN... -o all.json.")
    format = _merged_format(format, output)
    from msgspec.structs import replace

    from losscli.compare.configurations import headline
    from losscli.render.html.any_record import read_record
    from losscli.render.records import conclusion, write
    from losscli.runs.merge import merge, missing_parts
    from losscli.runs.records import Run

    paths = options.find_inputs(names, output, "part")
    if len(paths) < len(names):
        raise UsageError("a run is named twice. Name each part once.")
    runs = {}
    for name, path in paths.items():
        record = read_record(path)
        if not isinstance(record, Run) or record.kind not in ("bench", "verify"):
            raise UsageError(f"{name} is not a run of `losscli bench` or `losscli verify`.")
        runs[name] = record
    found = merge(runs, mixed=mixed)
    found = replace(found, headline=headline(found))
    write(found, format, output)
    say(f"{conclusion(found)}\n")
    if missing := missing_parts(found):
        note(f"part {', '.join(missing)} is missing: merge it with this record later")
    if output:
        note(f"wrote {output}")


def _merged_format(format: str, output: Path | None) -> str:
    if format in ("json", "jsonl"):
        return format
    if format != "table":
        raise UsageError(f"a merged record is written as json or jsonl, not as {format}.")
    if output is None or not is_replaceable(output):
        return "json"
    if output.suffix not in (".json", SUFFIX):
        said = (
            f"-o '{output}' ends in neither .json nor .jsonl, which a merged record is written as."
        )
        others = "`losscli report` and `losscli export` write it as something else."
        raise UsageError(f"{said} Name such a file; {others}")
    return output.suffix.removeprefix(".")


def _remove(names: Sequence[str]) -> None:
    if not names:
        raise UsageError("name the runs to remove: losscli runs rm NAME...")
    found = {name: _find(name) for name in names}
    for name in found:
        if _state(name) == RUNNING:
            raise UsageError(f"the run '{name}' is running. Stop it first.")
    for name, path in found.items():
        try:
            for file in {path, killed_runs().get(name, path)}:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise UnfitError(f"cannot remove {error.filename}: {error.strerror}.") from None
        note(f"removed {name}")


def _find(name: str) -> Path:
    if not (runs := _runs()):
        raise UsageError(f"there is no run '{name}': {_NONE.format(runs_directory())}")
    return runs[check_name("run", name, runs)]
