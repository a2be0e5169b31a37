"""The panels of verdicts of ``losscli judge``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from losscli.judge.parts import JudgeReason, Speed
from losscli.judge.verdict import Verdict
from losscli.reasons import Code
from losscli.render.html.forest_plot import Baseline, ForestRow, Mark, forest_plot
from losscli.render.html.measured import slug
from losscli.render.html.panel import Cell, Note, Panel, Row, State, Table, telling_table
from losscli.render.html.panels.environment import of_facts
from losscli.render.html.svg import Plot
from losscli.report.verdict_block import SAME_BITS, isolation, line, summary
from losscli.runs.judgements import SAME_WITHIN
from losscli.units import format_bytes, format_seconds, format_ulp
from losscli.views.bench import LONG_PASSES

_BASE = "the others"
_HAS_GRADIENT = {True: "yes", False: "no: nothing can be trained with it", None: "not tested"}
_WORST_FIRST: tuple[State, ...] = ("bad", "warn", "off")


def panels(
    verdicts: Sequence[Verdict], facts: Mapping[str, str], colours: Mapping[str, int], prefix: str
) -> list[Panel]:
    """Return the panels of a record of verdicts."""
    found = [_sentence(verdicts)]
    if len(verdicts) > 1:
        found.append(_overview(verdicts, prefix))
    for index, verdict in enumerate(verdicts, 1):
        found.append(_file(verdict, f"file{index}", colours))
    found.append(_environment(verdicts, facts))
    return found


def _sentence(verdicts: Sequence[Verdict]) -> Panel:
    if len(verdicts) == 1:
        only = verdicts[0]
        return Panel("verdict", "Verdict", sentence=line(only), state=_state(only))
    said = summary(verdicts).removeprefix("judge: ")
    states = [_state(verdict) for verdict in verdicts]
    worst: State = next((s for s in _WORST_FIRST if s in states), "good")
    return Panel("verdict", "Verdict", sentence=f"{said}.", state=worst)


def _overview(verdicts: Sequence[Verdict], prefix: str) -> Panel:
    rows = tuple(
        Row(
            (
                Cell(v.file or v.id, link=f"{prefix}file{index}"),
                Cell(v.word, _state(v)),
                v.against,
                str(v.checks.get("pass", 0)),
                str(v.checks.get("fail", 0)),
                v.reasons[0].text if v.reasons else "",
            )
        )
        for index, v in enumerate(verdicts, 1)
    )
    headers = ("file", "verdict", "against", "passed", "failed", "first reason")
    return Panel("files", "Files", tables=(Table("Files", headers, rows, words=3),))


def _file(verdict: Verdict, name: str, colours: Mapping[str, int]) -> Panel:
    device = f" on {verdict.device}" if verdict.device else ""
    cached = ", from the cache" if verdict.cached else ""
    lead = f"Judged against {verdict.against or 'nothing'}{device}{cached}."
    notes = [_reason(reason) for reason in verdict.reasons]
    if verdict.log.strip() and verdict.word in ("CRASHED", "DOES NOT BUILD"):
        lines = tuple(verdict.log.rstrip().splitlines()[-12:])
        notes.append(Note("The end of its output", lines=lines))
    speedups, tables = _speed(verdict, name, colours)
    return Panel(
        name,
        verdict.file or verdict.id,
        lead,
        speedups,
        tables=(_table(verdict), *tables),
        notes=tuple(notes),
        sentence=verdict.word,
        state=_state(verdict),
    )


def _reason(reason: JudgeReason) -> Note:
    where = f", in the check {reason.check}" if reason.check else ""
    case = f"Smallest case: {reason.case}." if reason.case else ""
    state: State = (
        "warn" if reason.code in (Code.REFUSES, Code.NO_WORSE_THAN_TORCH, Code.SLOWER) else "bad"
    )
    lines = (reason.repeat,) if reason.repeat else ()
    title = f"{reason.code.replace('_', ' ')}{where}"
    return Note(title, f"{reason.text}. {case}".strip(), state, lines)


def _table(verdict: Verdict) -> Table:
    """Return what was found out; what was not tested says so."""
    accuracy = verdict.accuracy
    checks = ", ".join(f"{number} {status}" for status, number in verdict.checks.items() if number)
    stages = ", ".join(f"{name} {format_seconds(s, 3)}" for name, s in verdict.seconds.items())
    rows = {
        "dtypes": ", ".join(verdict.dtypes),
        "checks": checks or "none ran",
        "error of the loss": _beside(accuracy.value_ulp, accuracy.torch_value_ulp),
        "error of the gradient": _beside(accuracy.gradient_ulp, accuracy.torch_gradient_ulp),
        "same bits": SAME_BITS[accuracy.deterministic],
        "has a gradient": _HAS_GRADIENT[verdict.trains],
        "isolation": isolation(verdict) or "none, for nothing ran",
        "not isolated": ", ".join(verdict.not_isolated),
        "time of each stage": stages,
        "source": f"SHA-256 {verdict.sha256}" if verdict.sha256 else "",
    }
    shown = tuple(Row((name, text)) for name, text in rows.items() if text)
    return Table("What was found", ("fact", "value"), shown, words=2)


def _beside(own: float | None, torch: float | None) -> str:
    if own is None:
        return "not tested"
    beside = "" if torch is None else f", PyTorch's own {format_ulp(torch)} ulp"
    return f"{format_ulp(own)} ulp{beside}"


def _speed(
    verdict: Verdict, name: str, colours: Mapping[str, int]
) -> tuple[tuple[Plot, ...], tuple[Table, ...]]:
    others = list(dict.fromkeys(other for speed in verdict.speed for other in speed.ratios))
    ways: dict[str, list[ForestRow]] = {}
    for speed in verdict.speed:
        marks = tuple(
            Mark(colours[other], f"over {other}", *speed.ratios[other])
            for other in others
            if other in speed.ratios and min(speed.ratios[other]) > 0
        )
        if marks:
            ways.setdefault(_long(speed), []).append(ForestRow(speed.case, marks))
    plots = tuple(
        forest_plot(
            f"speedup-{name}-{slug(way)}", f"Speedup of the file, {way}",
            f"How many times as fast as each other implementation the file is, {way}.",
            rows, Baseline(_BASE, SAME_WITHIN),
        )
        for way, rows in ways.items()
    )  # fmt: skip
    if not verdict.speed:
        return plots, ()
    versus = (f"vs {other}" for other in others)
    headers = ("case", "pass", "median", *versus, "% of limit", "extra")
    rows = [
        Row(
            (
                s.case, _long(s), format_seconds(s.seconds),
                *(_ratio(s.ratios.get(other)) for other in others),
                "" if s.limit_share is None else f"{100 * s.limit_share:.1f}",
                "" if s.peak_extra_bytes is None else format_bytes(s.peak_extra_bytes),
            )
        )
        for s in verdict.speed
    ]  # fmt: skip
    return plots, (telling_table("Times", headers, rows, keep=3),)


def _long(speed: Speed) -> str:
    return LONG_PASSES.get(speed.pass_, speed.pass_)


def _ratio(found: tuple[float, float, float] | None) -> str:
    return f"{found[0]:.2f}x ({found[1]:.2f}-{found[2]:.2f})" if found else ""


def _state(verdict: Verdict) -> State:
    if verdict.word == "NOT JUDGED":
        return "off"
    if not verdict.right:
        return "bad"
    return "good" if verdict.word == "RIGHT" else "warn"


def _environment(verdicts: Sequence[Verdict], facts: Mapping[str, str]) -> Panel:
    found = dict(facts)
    for name in ("losscli", "torch", "kind_of_machine"):
        values = dict.fromkeys(getattr(verdict, name) for verdict in verdicts)
        name = name.removeprefix("kind_of_")
        if text := ", ".join(value for value in values if value):
            found[name] = text
    return of_facts(found)
