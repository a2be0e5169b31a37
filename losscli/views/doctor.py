"""The report of `losscli doctor`: whether the device is usable, and a line for each finding."""

from losscli.doctor.findings import OK, PROBLEM, WARNING, Examination
from losscli.doctor.host import advice
from losscli.doctor.isolation import HELD, NOT_HELD, NOT_THERE, Siege
from losscli.implementations.sandbox.isolation_parts import missing
from losscli.views.document import Document, Notes, Sentence, Side, State, Table, named_once
from losscli.views.phrases import count

STATES: dict[str, State] = {OK: "good", WARNING: "warn", PROBLEM: "bad"}
STATES |= {HELD: "good", NOT_THERE: "warn", NOT_HELD: "bad"}
_LEFT: list[Side] = ["left"] * 4


def view(examination: Examination) -> Document:
    """Return the report of an examination."""
    rows = []
    for each in examination.results:
        rows.append([each.area, each.state, each.name, each.found])
        rows += [[each.area, "", "", f"-> {each.advice}"]] * bool(each.advice)
    counts = f"{examination.count(OK)} ok, {count(examination.count(WARNING), 'warning')}"
    answer = f"doctor: {examination.device} can be used; {counts}"
    if not examination.usable:
        problems = count(examination.count(PROBLEM), "problem")
        answer = f"doctor: {examination.device} cannot be used; {counts}, {problems}"
    return Sentence(answer), Table((), named_once(rows), align=_LEFT, wraps=True)


def of_isolation(siege: Siege) -> Document:
    """Return the report of attacks on the isolation of the judge."""
    rows = named_once([tried.part, tried.tries, tried.state, tried.how] for tried in siege.results)
    lacks = missing(siege.reached)
    counts = [f"{siege.count(s)} {s}" for s in (HELD, NOT_THERE, NOT_HELD) if siege.count(s)]
    attacks = count(len(siege.results), "attack")
    answer = f"isolation on {siege.device} as {siege.user}: {attacks}, {', '.join(counts)}"
    return (
        Sentence(answer),
        Table(("part", "what was tried", "state", "outcome"), rows, align=_LEFT, wraps=True),
        Notes([f"-> missing: {', '.join(lacks)}; {advice(lacks)}"] if lacks else []),
    )
