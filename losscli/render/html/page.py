"""Combine the documents of records into a page or single plots."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

from losscli import __version__
from losscli.compare.comparison import compare
from losscli.compare.gate import Comparisons
from losscli.compare.noise import CONTROLS
from losscli.implementations import CUSTOM
from losscli.render.html import picture
from losscli.render.html.any_record import Reported
from losscli.render.html.documents import about, document_of, short, summary_of
from losscli.render.html.picture import STYLES, Picture, draw, shape_at, unquoted
from losscli.render.html.svg import element, printable
from losscli.render.output import state_in, state_of
from losscli.render.text import are_figures
from losscli.runs.encoding import finite
from losscli.runs.records import Run
from losscli.views.document import Document, Notes, Part, Plot, Table, blocks_of
from losscli.views.phrases import slug

_FIRST = (CUSTOM, *CONTROLS)
_NOTES = 8
_IMPLEMENTATION = ("impl", "implementation")
"""Headers of the column that colours and hides rows."""


@dataclass(frozen=True)
class Section:
    """The document of one record, each of whose parts is a section of the page."""

    key: str
    """Prefix of its parts' ids."""
    name: str
    about: str
    document: tuple[Part, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    styles: Mapping[str, int] = field(default_factory=dict)
    """Each implementation's colour, the same in all sections."""

    @property
    def parts(self) -> Iterator[tuple[str, Part]]:
        """The parts with their ids."""
        for part in self.document:
            yield self.key + slug(part.title), part

    @property
    def pictures(self) -> list[Picture]:
        """All plots."""
        return [draw(plot, self.styles) for plot in blocks_of(self.document, Plot)]


def sections(records: Mapping[str, Reported]) -> list[Section]:
    """Return a section for each record, after one that compares several bench runs."""
    found = []
    benches = {n: r for n, r in records.items() if isinstance(r, Run) and r.kind == "bench"}
    if len(benches) > 1:
        (base, before), *others = benches.items()
        compared = Comparisons(base, {name: compare(before, run) for name, run in others})
        document = document_of(compared)
        found.append(Section("compared-", "Comparison", f"baseline {short(base)}", document))
    for index, (name, record) in enumerate(records.items(), 1):
        key = f"r{index}-" if len(records) > 1 else ""
        made = summary_of(record) if isinstance(record, Run) else {}
        data = made and {"name": short(name), **made}
        found.append(Section(key, short(name), about(record), document_of(record), data))
    colours = styles([name for each in found for name in _implementations(each.document)])
    return [replace(each, styles=colours) for each in found]


def styles(names: Sequence[str]) -> dict[str, int]:
    """Return the colour of each implementation, the usual ones first."""
    given = list(dict.fromkeys(names))
    found = {name: index for index, name in enumerate(_FIRST) if name in given}
    others = [name for name in given if name not in found]
    free = STYLES - len(_FIRST)
    return found | {name: len(_FIRST) + index % free for index, name in enumerate(others)}


def _implementations(document: Document) -> Iterator[str]:
    yield from (series.name for plot in blocks_of(document, Plot) for series in plot.series)
    for table in blocks_of(document, Table):
        for index, header in enumerate(table.headers):
            if header in _IMPLEMENTATION:
                yield from (row[index] for row in table.rows)


def render_page(found: Sequence[Section]) -> str:
    """Return the page; ModuleNotFoundError without Jinja2."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("losscli.render.html", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    frames: dict[str, str] = {}  # ids by markup

    def in_page(plot: Plot, section: Section) -> str:
        drawn = draw(plot, section.styles)
        return drawn.in_page(frames.setdefault(drawn.frame, f"f{len(frames)}"))

    def definitions() -> str:
        """Return what the plots refer to: the marks, and the frames that they share."""
        shared = "".join(element("g", frame, id=name) for frame, name in frames.items() if frame)
        return unquoted(picture.markers(sorted(set(found[0].styles.values()))) + shared)

    environment.globals |= {"picture": in_page, "definitions": definitions, "state_in": state_in}
    environment.globals |= {"laid_out": _laid_out, "grouped_notes": _grouped_notes}
    environment.globals["kind"] = lambda block: type(block).__name__
    script = (picture.TEMPLATES / "script.js").read_text(encoding="utf-8")
    text = environment.get_template("page.html.j2").render(
        sections=found,
        style="".join(map(picture.stylesheet, ("colours.css", "plot.css", "page.css"))),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        styles=found[0].styles,
        mark=partial(shape_at, x=13, y=6),
        data=_in_script({"schema_version": 2, "runs": [s.data for s in found if s.data]}),
        version=__version__,
    )
    return printable(text)


def _in_script(value: object) -> str:
    """Return JSON that cannot end the script element."""
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    escapes = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "", "\u2029": ""}
    text = text.translate({ord(each): escape for each, escape in escapes.items()})
    return text.encode("utf-8", "replace").decode()


def _laid_out(table: Table, section: Section) -> dict[str, Any]:
    rows = [list(row) for row in table.rows]
    headers = [header.replace("\n", " ") for header in table.headers]
    column = next((i for i, header in enumerate(headers) if header in _IMPLEMENTATION), None)
    words = len(list(takewhile(lambda cells: not are_figures(cells), zip(*rows, strict=True))))
    kinds = [f"w{min(words, 4)}", "f" * table.by_case, "facts" * (headers == ["fact", "value"])]
    kinds += ["matrix" * (headers[:1] == ["check"]), "words" * (headers[-1:] == ["first reason"])]
    cells = [[(cell, state_of(cell)) for cell in row] for row in rows]
    styles = [None if column is None else section.styles.get(row[column]) for row in rows]
    rows_of = list(zip(styles, cells, strict=True))
    return {"kind": " ".join(filter(None, kinds)), "headers": headers, "rows": rows_of}


def _grouped_notes(notes: Notes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    for line in notes.lines:
        if found and line.startswith(("    ", "from losscli.")):
            found[-1]["lines"].append(line.strip())
        elif line:
            state = notes.state or state_of(line.split(" ")[0].rstrip(":"))
            found.append({"text": line, "state": state, "lines": []})
    return found[:_NOTES], found[_NOTES:]
