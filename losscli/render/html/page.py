"""Puts the panels of records together, as a page or as single plots."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from losscli import __version__
from losscli.compare.comparison import compare
from losscli.compare.gate import Comparisons
from losscli.compare.record import ComparisonRecord, record_of
from losscli.render.html import data
from losscli.render.html.line_plot import shape_at
from losscli.render.html.measured import Measured, styles
from losscli.render.html.panel import Panel, Row, Table
from losscli.render.html.panels import (
    changes,
    checks,
    environment,
    errors,
    judged,
    outcome,
    results,
    samples,
    sizes,
    speedups,
)
from losscli.render.html.records import AnyRecord, Verdicts
from losscli.render.html.svg import Plot, printable, stylesheet
from losscli.render.records import view
from losscli.runs.columns import REFERENCE
from losscli.runs.encoding import finite
from losscli.runs.records import BenchResult, Run, VerifyResult
from losscli.views.document import tables


@dataclass(frozen=True)
class Section:
    """The panels of one record."""

    key: str
    """Begins the ids of its panels, so that they differ from those of other records."""
    name: str
    """The name that the user gave the record."""
    about: str
    panels: tuple[Panel, ...]
    data: Mapping[str, Any] | None = None

    @property
    def plots(self) -> list[Plot]:
        """All plots of the panels."""
        both = ((panel.plots, *(group.plots for group in panel.groups)) for panel in self.panels)
        return [plot for found in both for plots in found for plot in plots]


def sections(records: Mapping[str, AnyRecord]) -> list[Section]:
    """Return a section for each record, by the name that the user gave it.

    Several bench runs are compared with the first of them as well, in a section of its own.
    """
    colours = styles(_implementations(records.values()))
    found = []
    benches = {n: r for n, r in records.items() if isinstance(r, Run) and r.kind == "bench"}
    if len(benches) > 1:
        (base, before), *others = benches.items()
        compared = Comparisons(base, {name: compare(before, run) for name, run in others})
        panels = tuple(changes.panels(record_of(compared), colours))
        found.append(Section("compared-", "Comparison", f"baseline {changes.short(base)}", panels))
    for index, (name, record) in enumerate(records.items(), 1):
        key = f"r{index}-" if len(records) > 1 else ""
        found.append(_section(key, changes.short(name), record, colours))
    return found


def render_page(found: Sequence[Section], records: Mapping[str, AnyRecord]) -> str:
    """Return the page.

    Raises:
        ModuleNotFoundError: Jinja2 is not installed.
    """
    import jinja2

    environment_ = jinja2.Environment(
        loader=jinja2.PackageLoader("losscli.render.html", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    colours = styles(_implementations(records.values()))
    style = "".join(map(stylesheet, ("colours.css", "plot.css", "page.css")))
    loader = environment_.loader
    assert loader
    script = minified(loader.get_source(environment_, "script.js")[0])
    summaries = [{"name": s.name, **s.data} for s in found if s.data]
    text = environment_.get_template("page.html.j2").render(
        sections=found,
        style=style,
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        styles=colours,
        mark=lambda style: shape_at(style, 13, 6),
        data=_in_script({"schema_version": 1, "runs": summaries}),
        version=__version__,
    )
    return printable(text)


def minified(script: str) -> str:
    """Return a script without its comments and indentation."""
    lines = (line.strip() for line in script.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _in_script(value: object) -> str:
    """Return JSON that cannot end the element that holds it."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "", "\u2029": ""}
    for letter, written in escapes.items():
        text = text.replace(letter, written)
    return text.encode("utf-8", "replace").decode()


def _section(key: str, name: str, record: AnyRecord, colours: dict[str, int]) -> Section:
    if isinstance(record, Verdicts):
        given = {"command": " ".join(record.command), "created": record.created}
        known = {name: text for name, text in given.items() if text}
        panels = judged.panels(record.verdicts, known, colours, key)
        return Section(key, name, _about("judge", record.created, ""), tuple(panels))
    if isinstance(record, ComparisonRecord):
        about = f"compare, baseline {changes.short(record.baseline)}"
        return Section(key, name, about, tuple(changes.panels(record, colours)))
    machine = str(record.environment.get("gpu") or record.environment.get("cpu") or "")
    about = _about(record.kind, record.created, machine)
    if record.kind == "bench":
        measured = Measured(record, colours)
        return Section(key, name, about, tuple(_of_bench(measured, key)), data.of_bench(measured))
    if record.kind == "verify":
        panels = list(_of_checks(record, colours, key))
        return Section(key, name, about, tuple(panels), data.of_checks(record))
    return Section(key, name, about, tuple(_of_self_test(record)))


def _about(kind: str, created: str, machine: str) -> str:
    return ", ".join(word for word in (kind, machine, created[:16].replace("T", " ")) if word)


def _of_bench(measured: Measured, key: str) -> Iterator[Panel]:
    yield outcome.of_bench(measured)
    yield sizes.limit(measured)
    yield sizes.times(measured)
    yield speedups.panel(measured)
    yield samples.panel(measured)
    yield errors.panel(measured)
    yield results.results(measured, key)
    yield results.cases(measured, key)
    yield environment.panel(measured.run, measured.results)


def _of_checks(run: Run, colours: dict[str, int], key: str) -> Iterator[Panel]:
    verified = run.of(VerifyResult)
    yield outcome.of_checks(run, verified)
    yield checks.matrix(verified)
    yield errors.of_checks(verified, colours)
    yield from checks.figures(verified, colours, key)
    yield environment.panel(run)


def _of_self_test(run: Run) -> Iterator[Panel]:
    yield outcome.of_self_test(run)
    found = tuple(
        Table(
            "Results", tuple(table.headers), tuple(Row(tuple(row)) for row in table.rows), words=2
        )
        for table in tables(view(run))
    )
    yield Panel("results", "All results", tables=found)
    yield environment.panel(run)


def _implementations(records: Iterable[AnyRecord]) -> Iterator[str]:
    for record in records:
        if isinstance(record, Run):
            timed = (r for r in record.results if isinstance(r, BenchResult | VerifyResult))
            yield from (r.implementation for r in timed)
            if record.kind == "verify":
                yield REFERENCE  # whose errors stand beside the others
        elif isinstance(record, Verdicts):
            speeds = (speed for verdict in record.verdicts for speed in verdict.speed)
            yield from (other for speed in speeds for other in speed.ratios)
        else:
            yield from (row.implementation for one in record.comparisons for row in one.rows)
