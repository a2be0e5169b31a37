"""The options that commands share: one per axis of the config, and the output options."""

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from losscli.cases.axes import CHANGING, DTYPES, LAYOUTS, PASSES
from losscli.cli.completion import Complete, OneOf, listed
from losscli.cli.variables import option, switch
from losscli.config import fields
from losscli.config.fields import check_name
from losscli.config.filters import Read, parse_filter
from losscli.config.loader import load_config, shipped_configs
from losscli.config.schema import Config
from losscli.config.sizes import parse_size
from losscli.errors import UnfitError, UsageError
from losscli.implementations import IMPLEMENTATIONS, find_implementation
from losscli.losses import EVERY_LOSS, LINEAR_LOSSES, LOSSES, REDUCTIONS, ROW_FORMS, WEIGHTED
from losscli.processes.garbage import without_garbage_collection
from losscli.ranks.place import is_silent
from losscli.runs.columns import COLUMNS, FORMER_COLUMNS
from losscli.runs.files import held, is_replaceable
from losscli.runs.parts import parse_part
from losscli.runs.saved import find_run, saved_runs

FORMATS = ("table", "md", "csv", "json", "jsonl")

Decorator = Callable[[Any], Any]


def _together(*options: Decorator) -> Decorator:
    """Combine options; the help of a command lists them in this order."""

    def add(command: Any) -> Any:
        for each in reversed(options):
            command = each(command)
        return command

    return add


def resolve_config(config: str | None, **options: Any) -> Config:
    """Load the config and override it by the options of ``axis_options``."""
    from losscli.config.expansion import kept_and_excluding, rows  # cases take a while to import

    loaded = load_config(config, overrides_of(**options))
    every = rows(loaded.blocks, "cpu")
    if loaded.filters and not any(kept_and_excluding(*row)[0] for row in every):
        advice = "--list without --filter lists the cases."
        raise UsageError(f"--filter matches no case of the config. {advice}")
    return loaded


def overrides_of(**options: Any) -> dict[str, object]:
    """Return the config fields that options replace."""
    return {field: value for field, value in options.items() if value not in (None, ())}


def of_report(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a report out of those of a command."""
    return {name: options.pop(name) for name in ("format", "keep_going", "verbose")}


def examples(*lines: str, after: str = "") -> Decorator:
    """Add example command lines and a last paragraph to a command's help."""

    def add(command: Any) -> Any:
        block = "\n".join(f"  {line}" for line in lines)
        command.__doc__ = f"{inspect.getdoc(command)}\n\n\b\nExamples:\n{block}\n\n{after}"
        return command

    return add


def named_option(flag: str, candidates: Iterable[str], help: str, **more: Any) -> Decorator:
    """Return an option that takes one of a few names; errors name it as the flag."""
    return option(flag, type=OneOf(flag.removeprefix("--"), candidates), help=help, **more)


def format_option(formats: Sequence[str], help: str) -> Decorator:
    """Return --format, whose default is the first format."""
    return named_option("--format", formats, help, default=formats[0])


def device_option(verb: str = "Run on device NAME", **more: Any) -> Decorator:
    """Return --device."""
    help = f"{verb}: auto, cpu, cuda or cuda:N."
    return option("--device", type=fields.check_device, metavar="NAME", help=help, **more)


def number_option(flag: str, help: str) -> Decorator:
    """Return an option that takes a whole number from 1 to 1024; errors name it as the flag."""
    kind = fields.whole_number(f"number of {flag.removeprefix('--')}", 1, 1024)
    return option(flag, type=kind, metavar="N", help=help)


keep_going_option = option(
    "--keep-going/--fail-fast",
    default=True,
    help="Stop at the first failure; default: --keep-going.",
)


def axis(
    flag: str, field: str, metavar: str, read: Read, help: str, complete: Complete | None = None
) -> Decorator:
    """Return an axis: a repeatable option that takes comma-separated values."""

    def parse(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Any:
        parts = [part.strip() for value in given for part in value.split(",")]
        return tuple(dict.fromkeys(item for part in parts for item in read(part)))

    more: dict[str, Any] = {"metavar": metavar, "callback": parse, "shell_complete": complete}
    return option(flag, field, multiple=True, help=help, **more)


def named_axis(flag: str, field: str, kind: str, candidates: Collection[str]) -> Decorator:
    """Return an axis of names."""
    return axis(
        *(flag, field, "NAME"),
        lambda text: (check_name(kind, text, candidates),),
        f"{field.capitalize()}: {', '.join(candidates)}.",
        listed(lambda: candidates, commas=True),
    )


columns_option = axis(
    *("--columns", "columns", "NAME"),
    lambda text: (check_name("column", FORMER_COLUMNS.get(text, text), COLUMNS),),
    "Columns of the tables: `losscli list columns`.",
    listed(lambda: COLUMNS, commas=True),
)
_LOSSES: Mapping[str, Collection[str]] = {
    "all": LOSSES,
    "weighted": WEIGHTED,
    "rows": ROW_FORMS,
    "linear": LINEAR_LOSSES,
}


def _losses(text: str) -> tuple[str, ...]:
    return tuple(_LOSSES[text]) if text in _LOSSES else (fields.check_loss(text),)


COMPLETE_RUNS = listed(saved_runs, files=True)
_LOSS_HELP = (
    "Losses of `losscli list losses`, weighted_NAME, or all (elementwise), weighted, rows, linear."
)


def loss_axis(help: str = _LOSS_HELP) -> Decorator:
    """Return the axis of the losses."""
    complete = listed(lambda: (*_LOSSES, *EVERY_LOSS), commas=True)
    return axis("--loss", "losses", "NAME", _losses, help, complete)


axis_options_of_config = _together(
    loss_axis(),
    axis(
        *("--size", "sizes", "SIZE", parse_size),
        "Sizes: 1024x1024, 32K, 1K..32K*2 or pow2[10:30:5].",
    ),
    named_axis("--dtype", "dtypes", "dtype", DTYPES),
    named_axis("--reduction", "reductions", "reduction", REDUCTIONS),
    named_axis("--pass", "passes", "pass", PASSES),
    axis(
        *("--grad-output", "grad_outputs", "VALUE"),
        lambda text: (fields.check_grad_output(text),),
        f"grad_output: a number, or {CHANGING} in every call.",
    ),
    named_axis("--layout", "layouts", "layout", LAYOUTS),
    axis(
        *("--impl", "implementations", "NAME"),
        lambda text: (find_implementation(text).name,),
        "Names in `losscli list implementations`, FILE.py, FILE.py:FUNCTION or FILE.py@REVISION.",
        listed(lambda: IMPLEMENTATIONS, files=True, commas=True),
    ),
    device_option(),
    option("--seed", type=fields.check_seed, metavar="N", help="Seed the inputs with N."),
)
"""Options that override a key of a config, for ``overrides_of``."""
filter_option = option(
    *("--filter", "filters"),
    multiple=True,
    type=parse_filter,
    metavar="FILTER",
    help="Keep results that match, such as loss=mse,size!=1Kx1K or 'impl=custom*|compile'.",
)
choosing_options = _together(
    option(
        *("-c", "--config"),
        metavar="FILE",
        help="A YAML file, or a name in `losscli list configs`.",
        shell_complete=listed(shipped_configs, files=True),
    ),
    axis_options_of_config,
    filter_option,
    switch("--list", "list_cases", help="List the names of the cases; run nothing."),
)
"""``resolve_config`` takes all of their keywords except ``list_cases``."""


def _output(value: str) -> Path | None:
    if not value:
        raise UsageError("-o '' is an empty file name. Name a file, or - for standard output.")
    return None if value == "-" else writable("-o", Path(value))


def writable(flag: str, path: Path) -> Path:
    """Raise an error for an option's file that cannot be written."""
    try:
        if path.is_dir():
            raise UsageError(f"{flag} '{path}' is a directory. Name a file.")
        if not path.parent.is_dir():
            raise UsageError(f"{flag} '{path}': there is no directory '{path.parent}'. Create it.")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UnfitError(f"{flag} '{path}' cannot be written. Name another file.")
    except OSError as error:
        raise UnfitError(f"{flag} '{path}': {error.strerror}. Name another file.") from None
    return path


def find_inputs(
    names: Iterable[str],
    output: Path | None,
    what: str = "run",
    otherwise: Callable[[], Mapping[str, Path]] = dict,
) -> Mapping[str, Path]:
    """Return the files of named runs, to be read without the garbage collector."""
    click.get_current_context().with_resource(without_garbage_collection())
    paths = {name: find_run(name) for name in names} or otherwise()
    for name, path in paths.items():
        if output and os.path.exists(output) and os.path.samefile(output, path):
            raise UsageError(f"-o '{output}' is the {what} '{name}' itself. Name another file.")
    return paths


def hold(
    output: Path | None, saved: Path | None = None, *, kind: str = "", resume: str | None = None
) -> Path | None:
    """Lock a command's outputs until it ends; return the unfinished run that ``resume`` names."""
    if is_silent():
        return None
    files = (path.resolve() for path in (output, saved) if path and is_replaceable(path))
    for path in dict.fromkeys(files):
        click.get_current_context().with_resource(held(path))
    from losscli.runs import journal  # which takes a while to import

    unfinished = None if resume is None else journal.find_unfinished(resume)
    if kind and (place := journal.journal_of(output, saved)):
        journal.refuse_unreported(kind, *place, unfinished)
    return unfinished


verbose_option = switch("-v", "--verbose", help="Show all details, and what the columns mean.")


def output_to(help: str) -> Decorator:
    """Return the option -o with this help."""
    return option("-o", "--output", type=_output, metavar="PATH", help=help)


output_option = output_to("Write the report to PATH; - is standard output.")
"""-o alone, for commands with their own formats."""
output_options = _together(
    format_option(FORMATS, f"Report as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."),
    output_option,
)
"""A command receives ``format`` and ``output``, a path or None."""


def listing_format(
    formats: Sequence[str] = ("table", "json"), help: str = "Write the list as table or json."
) -> Decorator:
    """Return --format and --json for a command that lists; it receives ``format``."""

    def add(command: Any) -> Any:
        @wraps(command)
        def call(*args: Any, format: str, as_json: bool, **options: Any) -> Any:
            return command(*args, format="json" if as_json else format, **options)

        short = switch("--json", "as_json", help="Write JSON, as --format json.")
        return _together(format_option(formats, help), short)(call)

    return add


axis_options = _together(
    choosing_options,
    switch("--dry-run", help="Show which cases fit the memory; run nothing."),
    option(
        "--part",
        type=parse_part,
        metavar="K/N",
        help="Run part K of N; all take about equally long.",
    ),
    keep_going_option,
)
