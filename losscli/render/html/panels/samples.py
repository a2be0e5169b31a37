"""The panel of the samples that spread most, by process."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from losscli.compare.rows import label
from losscli.render.html.measured import Measured, pass_of
from losscli.render.html.panel import Panel, Row, Table
from losscli.render.html.strip_plot import Strip, distances, strip_plot
from losscli.runs.records import BenchResult, Seconds
from losscli.units import format_seconds

_TITLE = "Samples by process"
_SHOWN = 8
"""Results that the panel shows; each case's section shows its own."""
_LEAD = (
    "Each tick is one sample, each line of ticks one process, drawn by the distance from the "
    "median of the result; the shaded part reaches from p20 to p80. Shown are the {} whose "
    "samples spread most. {}"
)


def panel(measured: Measured) -> Panel:
    """Return the panel."""
    known = [
        (r, seconds) for r in measured.timed if (seconds := r.seconds) and len(seconds.samples) > 1
    ]
    if not known:
        return Panel("samples", _TITLE, missing="Left out: no result has several samples.")
    known.sort(key=lambda pair: (pair[1].p80 - pair[1].p20) / pair[1].median, reverse=True)
    widest = known[:_SHOWN]
    strips = [
        strip(measured, r, measured.names[r.case], f"{r.implementation}, {pass_of(r)}: ")
        for r, _ in widest
    ]
    half = (len(strips) + 1) // 2
    parts = [part for part in (strips[:half], strips[half:]) if part]
    plots = tuple(
        strip_plot(f"samples-{n}", f"Samples that spread most, {n} of {len(parts)}", part)
        for n, part in enumerate(parts, 1)
    )
    rows = tuple(
        Row(
            (
                label(result), str(index), str(len(each)), format_seconds(median(each)),
                format_seconds(min(each)), format_seconds(max(each)),
            ),
            measured.styles[result.implementation],
        )
        for result, seconds in widest
        for index, each in enumerate(seconds.by_process, 1)
    )  # fmt: skip
    headers = ("result", "process", "samples", "median", "least", "largest")
    lead = _LEAD.format(f"{len(widest)} of {len(known)} results", _processes(s for _, s in known))
    return Panel("samples", _TITLE, lead, plots, behind=(Table(_TITLE, headers, rows, words=2),))


def strip(measured: Measured, result: BenchResult, name: str, below: str = "") -> Strip:
    """Return the samples of a result as a strip; ``below`` stands before its median."""
    seconds = result.seconds
    assert seconds
    middle = distances((seconds.p20, seconds.p80), seconds.median)
    parts = tuple(distances(each, seconds.median) for each in seconds.by_process)
    value = below + format_seconds(seconds.median)
    style = measured.styles[result.implementation]
    return Strip(style, name, value, parts, (middle[0], middle[1]))


def _processes(timed: Iterable[Seconds]) -> str:
    counts = {len(seconds.by_process) for seconds in timed}
    if counts == {1}:
        return "One process took them all, so the spread between processes is unknown."
    least, most = min(counts), max(counts)
    return f"Each result is of {most if least == most else f'{least} to {most}'} processes."
