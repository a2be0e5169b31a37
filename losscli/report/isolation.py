"""The report of `losscli doctor --isolation`: a line for each attack on the walls."""

from __future__ import annotations

import textwrap

from losscli.console.streams import GREEN, RED, YELLOW, coloured
from losscli.doctor.host import advice
from losscli.doctor.isolation import HELD, NOT_HELD, NOT_THERE, Siege, State
from losscli.implementations.sandbox.parts import missing
from losscli.report.phrases import count
from losscli.report.tables import GAP, WIDTH, fill, lay_out

COLOURS: dict[State, str] = {HELD: GREEN, NOT_THERE: YELLOW, NOT_HELD: RED}
HEADERS = ("wall", "what was tried", "state", "how")


def render(siege: Siege, *, colour: bool = False) -> str:
    """Return the report as text."""
    rows: list[list[str]] = []
    room = WIDTH - sum(
        max(map(len, column)) + GAP
        for column in zip(
            HEADERS[:3], *((t.part, t.tries, t.state) for t in siege.results), strict=True
        )
    )
    last = ""
    for tried in siege.results:
        state = coloured(tried.state, COLOURS[tried.state]) if colour else tried.state
        first, *others = textwrap.wrap(tried.how, room)
        rows.append(["" if tried.part == last else tried.part, tried.tries, state, first])
        rows += [["", "", "", line] for line in others]
        last = tried.part
    lines = [lay_out(HEADERS, rows), "", summary(siege)]
    if lacks := missing(siege.reached):
        lines.append(fill(f"-> missing: {', '.join(lacks)}; {advice(lacks)}"))
    return "\n".join(lines)


def summary(siege: Siege) -> str:
    """Return the line that a person can quote."""
    counts = [f"{siege.count(state)} {state}" for state in COLOURS if siege.count(state)]
    attacks = count(len(siege.results), "attack")
    return f"isolation on {siege.device} as {siege.user}: {attacks}, {', '.join(counts)}"
