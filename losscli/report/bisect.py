"""The report of `losscli bisect`: the first commit of each regression, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from losscli.compare.bisect import Bisect, Culprit
from losscli.compare.figures import FIGURES, TIME
from losscli.machine.commits import SHOWN
from losscli.report.bench_table import LONG_PASSES, SHORT_PASSES
from losscli.report.phrases import count
from losscli.report.tables import fill, lay_out
from losscli.runs.records import SCHEMA_VERSION
from losscli.units import format_bytes, format_seconds

_SUBJECT = 40
"""Characters of a subject in the table."""


def lines_of(case: str, name: str, search: Bisect, found: Sequence[Culprit]) -> list[str]:
    """Return the commits that were measured, in their order, and the first of each regression."""
    order = [search.range.good, *search.range.commits()]
    headers = ["commit", "subject", "pass", "median", "of good", "extra"]
    rows = []
    for commit in order:
        subject = search.range.subject(commit)[:_SUBJECT]
        if commit in search.skipped:
            rows.append([commit[:SHOWN], subject, "skipped", "", "", ""])
        for pass_, measured in search.measured.get(commit, {}).items():
            result, ratio = measured.result, f"{measured.ratio.value:.3f}"
            memory = result.peak_extra_bytes
            median = format_seconds(result.seconds.median) if result.seconds else ""
            extra = "-" if memory is None else format_bytes(memory)
            cells = [SHORT_PASSES[pass_], median, ratio, extra]
            rows.append([commit[:SHOWN], subject, *cells])
    lines = [f"{case}, {name}", "", lay_out(headers, rows), ""]
    lines += [fill(f"skipped {commit[:SHOWN]}: {why}") for commit, why in search.skipped.items()]
    return lines + [fill(_first(search, culprit)) for culprit in found]


def _first(search: Bisect, culprit: Culprit) -> str:
    """Return the sentence of a regression."""
    regression, measured = culprit.regression, culprit.measured or culprit.regression.found
    names = [f"{each[:SHOWN]} ({search.range.subject(each)})" for each in culprit.commits]
    where = f"since {names[0]}"
    if len(names) > 1:
        some = count(len(names), "commit")
        where = f"since one of {some}, of which only the last was measured: {', '.join(names)}"
    pass_ = LONG_PASSES[regression.pass_]
    if regression.figure == TIME:
        times = [r.seconds.median for r in (measured.good, measured.result) if r.seconds]
        told = ", then ".join(map(format_seconds, times))
        ratio = f"{measured.ratio.value:.3f} ({measured.ratio.low:.3f}-{measured.ratio.high:.3f})"
        return f"SLOWER {where}: {pass_} takes {ratio} of the time, {told}"
    figure = FIGURES[regression.figure]
    both = [figure.of(result) or 0.0 for result in (measured.good, measured.result)]
    told = ", then ".join(map(figure.text, both))
    return f"MORE {regression.figure.upper()} {where}: {pass_}, {told}"


def record_of(case: str, name: str, search: Bisect, found: Sequence[Culprit]) -> dict[str, Any]:
    """Return the record of a search."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "bisect",
        "case": case,
        "implementation": name,
        "good": search.range.good,
        "bad": search.range.bad,
        "found": [
            {
                "figure": culprit.regression.figure,
                "pass": culprit.regression.pass_,
                "commits": list(culprit.commits),
            }
            for culprit in found
        ],
        "measured": [
            {
                "commit": commit,
                "pass": pass_,
                "seconds": measured.result.seconds and measured.result.seconds.median,
                "ratio": measured.ratio.value,
                "ratio_low": measured.ratio.low,
                "ratio_high": measured.ratio.high,
                "peak_extra_bytes": measured.result.peak_extra_bytes,
            }
            for commit, by in search.measured.items()
            for pass_, measured in by.items()
        ],
        "skipped": dict(search.skipped),
    }
