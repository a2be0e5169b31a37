"""The report of `losscli doctor`: a line for each finding, and below it what to do."""

from __future__ import annotations

import textwrap
from itertools import groupby

from losscli.console.streams import GREEN, RED, YELLOW, coloured
from losscli.doctor.findings import OK, PROBLEM, STATES, WARNING, Examination, State
from losscli.errors import printable
from losscli.report.phrases import count
from losscli.report.tables import WIDTH

COLOURS: dict[State, str] = {OK: GREEN, WARNING: YELLOW, PROBLEM: RED}


def render(examination: Examination, *, colour: bool = False) -> str:
    """Return the report of an examination as text."""
    state_width = max(map(len, STATES))
    name_width = max((len(finding.name) for finding in examination.findings), default=0)
    indent = " " * (2 + state_width + 2 + name_width + 2)
    lines = []
    for area, findings in groupby(examination.findings, key=lambda finding: finding.area):
        lines.append(f"{area}:")
        for finding in findings:
            state = f"{finding.state:{state_width}}"
            state = coloured(state, COLOURS[finding.state]) if colour else state
            start = f"  {state}  {finding.name:{name_width}}  "
            lines.append(start + _filled(finding.found, indent).lstrip())
            if finding.advice:
                lines.append(_filled(f"-> {finding.advice}", indent))
    return "\n".join([*lines, "", summary(examination)])


def summary(examination: Examination) -> str:
    """Return the summary line."""
    counts = f"{examination.count(OK)} ok, {count(examination.count(WARNING), 'warning')}"
    if examination.usable:
        return f"doctor: {examination.device} can be used; {counts}"
    problems = count(examination.count(PROBLEM), "problem")
    return f"doctor: {examination.device} cannot be used; {counts}, {problems}"


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(
        printable(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
