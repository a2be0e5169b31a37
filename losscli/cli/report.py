"""``losscli report``: writes a page with plots of saved records, or one plot."""

import sys
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path

import click

from losscli.cli.options import examples, find_inputs, format_option, output_option
from losscli.cli.variables import option, switch
from losscli.console.streams import emit, tell
from losscli.errors import UnfitError, UsageError, unknown
from losscli.runs.files import write_file
from losscli.units import first_of

_SHOWN = 12


@click.command("report")
@click.argument("names", nargs=-1, metavar="RUN...")
@format_option(("html", "svg"), "Write the page as html, or one plot as svg.")
@option("--plot", metavar="NAME", help="Choose the plot of --format svg.")
@switch("--list-plots", help="List the names of the plots; write nothing.")
@output_option
@examples(
    "losscli report base.json -o report.html",
    "losscli report base new -o report.html",
    "losscli report base --list-plots",
    "losscli report base --format svg --plot speedup-forward -o speedup.svg",
    after="Exit codes: 2 a RUN does not exist or is not a record of losscli, 4 Jinja2 is missing, "
    "or the output cannot be written.",
)
def command(
    names: tuple[str, ...], format: str, plot: str | None, list_plots: bool, output: Path | None
) -> None:
    """Write one HTML page about records: plots, tables, failures, the machine.

    A RUN is a file in JSON or JSONL that `losscli bench`, `verify`, `judge`, `compare` or
    `self-test` wrote, or the NAME of a run that `losscli bench --save NAME` saved. Several bench
    runs are compared with the first. The page needs no network and no other file.
    """
    if not names:
        raise UsageError("name a record: losscli report RUN -o report.html.")
    if plot is not None and format == "html":
        raise UsageError("--plot chooses a single plot. Add --format svg.")
    page = format == "html" and not list_plots
    if page and output is None and sys.stdout.isatty():
        raise UsageError("a terminal cannot show a page. Name a file with -o.")
    if page and find_spec("jinja2") is None:
        advice = "Install it with `pip install 'losscli[report]'`, or choose --format svg."
        raise UnfitError(f"the page needs Jinja2, which is not installed. {advice}")
    from losscli.render.html.any_record import read_record
    from losscli.render.html.page import render_page, sections

    paths = find_inputs(names, output, "record")
    found = sections({name: read_record(path) for name, path in paths.items()})
    # A run's name comes first where there are several.
    drawn = ((each.key, plot) for each in found for plot in ([] if page else each.pictures))
    plots = {key + plot.name: plot for key, plot in drawn}
    if list_plots:
        emit("\n".join(f"{name}  {each.title}" for name, each in plots.items()))
        return
    text = render_page(found) if page else f"{plots[_choose(plots, plot)].standalone()}\n"
    content = text.encode("utf-8", "replace")
    if output:
        write_file(output, content)
        tell(f"losscli: wrote {output}")
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _choose(plots: Collection[str], name: str | None) -> str:
    if not plots:
        raise UsageError("these records have no plot. --format html has their tables.")
    if name is None and len(plots) > 1:
        more = " (--list-plots)" if len(plots) > _SHOWN else ""
        raise UsageError(f"choose a plot with --plot: {first_of(plots, _SHOWN)}{more}.")
    if name is not None and name not in plots:
        hint = unknown("plot", name, list(plots)[:_SHOWN]).rstrip(".")
        raise UsageError(f"{hint}; --list-plots lists all.")
    return name or next(iter(plots))
