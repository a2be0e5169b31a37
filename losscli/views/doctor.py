"""What `losscli doctor` reports: whether the device can be used, and a line for each finding."""

from __future__ import annotations

from itertools import groupby

from losscli.doctor.findings import OK, PROBLEM, WARNING, Examination
from losscli.doctor.host import advice
from losscli.doctor.isolation import HELD, NOT_HELD, NOT_THERE, Siege
from losscli.implementations.sandbox.parts import missing
from losscli.views.document import Document, Notes, Sentence, Side, State, Table
from losscli.views.phrases import count

STATES: dict[str, State] = {
    OK: "good",
    WARNING: "warn",
    PROBLEM: "bad",
    HELD: "good",
    NOT_THERE: "warn",
    NOT_HELD: "bad",
}
_LEFT: list[Side] = ["left"] * 4


def view(examination: Examination) -> Document:
    """Return the report of an examination."""
    rows = []
    for area, findings in groupby(examination.findings, key=lambda finding: finding.area):
        for index, each in enumerate(findings):
            rows.append(["" if index else area, each.state, each.name, each.found])
            rows += [["", "", "", f"-> {each.advice}"]] * bool(each.advice)
    return Sentence(summary(examination)), Table((), rows, align=_LEFT, wraps=True)


def summary(examination: Examination) -> str:
    """Return whether the device can be used."""
    counts = f"{examination.count(OK)} ok, {count(examination.count(WARNING), 'warning')}"
    if examination.usable:
        return f"doctor: {examination.device} can be used; {counts}"
    problems = count(examination.count(PROBLEM), "problem")
    return f"doctor: {examination.device} cannot be used; {counts}, {problems}"


def of_isolation(siege: Siege) -> Document:
    """Return the report of attacks on the isolation of the judge."""
    rows: list[list[str]] = []
    last = ""
    for tried in siege.results:
        part = "" if tried.part == last else tried.part
        rows.append([part, tried.tries, tried.state, tried.how])
        last = tried.part
    lacks = missing(siege.reached)
    return (
        Sentence(summary_of_isolation(siege)),
        Table(("wall", "what was tried", "state", "how"), rows, align=_LEFT, wraps=True),
        Notes([f"-> missing: {', '.join(lacks)}; {advice(lacks)}"] if lacks else []),
    )


def summary_of_isolation(siege: Siege) -> str:
    """Return how many attacks the isolation held off."""
    counts = [f"{siege.count(s)} {s}" for s in (HELD, NOT_THERE, NOT_HELD) if siege.count(s)]
    attacks = count(len(siege.results), "attack")
    return f"isolation on {siege.device} as {siege.user}: {attacks}, {', '.join(counts)}"
