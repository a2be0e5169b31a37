"""Plots of the results in docs/results: the share of the limit, over size."""

from __future__ import annotations

from collections.abc import Iterable
from math import log10
from pathlib import Path

from docs.pages.svg import Axis, axis_over, chart, figure
from losscli.cases.axes import CONTIGUOUS
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult, Run
from losscli.units import format_seconds

RESULTS = Path(__file__).parents[1] / "results"
RECORD = "h200-peers-bench.json"
IMPLEMENTATIONS = ("custom", "reference", "functional", "compile")
PASSES = {"forward": "forward", "forward_backward": "forward and backward"}
INTRODUCTION = """\
# Plots

These plots are drawn from the record `{record}` of [the measured results](../results/README.md)
when the documentation is built. They show contiguous operands of float32, the mean, and an incoming
gradient of 1, on {device}. `custom` is losscli. The first plot of each pair shows how much of the
speed of the memory is reached, where 100 % is a kernel that only moves the bytes, of the same size.
The second shows the time of one call; both of its axes are logarithmic.
[Performance](../performance.md) has the tables.
"""


def page() -> str:
    """Return the page of all plots."""
    run = read_run(RESULTS / RECORD, "bench")
    device = run.environment.get("gpu", {})
    name = device.get("name", "an NVIDIA H200") if isinstance(device, dict) else str(device)
    parts = [INTRODUCTION.format(record=RECORD, device=name)]
    kept = list(_kept(run))
    for loss in sorted({result.case.loss for result in kept}):
        parts.append(f"## {loss}\n")
        for pass_, words in PASSES.items():
            results = [each for each in kept if each.case.loss == loss and each.pass_ == pass_]
            if results:
                parts += [f"### {loss}, {words}\n", *_pair(f"{loss}, {words}", results)]
    return "\n".join(parts)


def _kept(run: Run) -> Iterable[BenchResult]:
    """Return the results that the plots show."""
    for result in run.results:
        if not isinstance(result, BenchResult) or result.seconds is None:
            continue
        case = result.case
        if (
            case.dtype == "float32"
            and case.reduction == "mean"
            and case.layout == CONTIGUOUS
            and case.grad_output == 1
            and result.mode == "device"
        ):
            yield result


def _pair(title: str, results: list[BenchResult]) -> list[str]:
    """Return the share of the limit and the time, over size."""
    counts = sorted({_count(result) for result in results})
    ticks = [(size.bit_length() - 1.0, f"2^{size.bit_length() - 1}") for size in counts]
    x = Axis("elements", ticks[0][0] - 0.5, ticks[-1][0] + 0.5, ticks)
    share, time = [], []
    for name in IMPLEMENTATIONS:
        own = sorted((each for each in results if each.implementation == name), key=_count)
        limited = [each for each in own if each.limit_share is not None]
        share.append((name, [(_log2(each), 100 * (each.limit_share or 0)) for each in limited]))
        time.append((name, [(_log2(each), _log10(each)) for each in own]))
    share, time = ([line for line in lines if line[1]] for lines in (share, time))
    powers = range(-7, 1)
    heights = [y for _, points in time for _, y in points]
    low, high = int(min(heights)) - 1, int(max(heights))
    y = Axis("time", low, high, [(n, format_seconds(10.0**n)) for n in powers if low <= n <= high])
    made = [figure(chart(f"{title}: time over elements", x, y, time), "Time of one call.")]
    if share:
        most = axis_over("% of the limit", [0.0, *(y for _, points in share for _, y in points)])
        drawn = chart(f"{title}: share of the limit over elements", x, most, share)
        made.insert(0, figure(drawn, "Share of what the memory can deliver."))
    return made


def _count(result: BenchResult) -> int:
    count = 1
    for extent in result.case.shape:
        count *= extent
    return count


def _log2(result: BenchResult) -> float:
    return _count(result).bit_length() - 1.0


def _log10(result: BenchResult) -> float:
    assert result.seconds is not None
    return log10(result.seconds.median)
