"""The report of `losscli doctor`: a line for each finding, and below it what to do."""

from __future__ import annotations

import textwrap
from itertools import groupby

from losscli.doctor.findings import OK, PROBLEM, STATES, WARNING, Report, State
from losscli.report.output import GREEN, RED, YELLOW, coloured
from losscli.report.phrases import count
from losscli.report.tables import WIDTH

COLOURS: dict[State, str] = {OK: GREEN, WARNING: YELLOW, PROBLEM: RED}


def render(report: Report, *, colour: bool = False) -> str:
    """Return the report as text."""
    state_width = max(map(len, STATES))
    name_width = max((len(finding.name) for finding in report.findings), default=0)
    indent = " " * (2 + state_width + 2 + name_width + 2)
    lines = []
    for area, findings in groupby(report.findings, key=lambda finding: finding.area):
        lines.append(f"{area}:")
        for finding in findings:
            start = f"  {_painted(finding.state, state_width, colour)}  "
            start += f"{finding.name:{name_width}}  "
            lines.append(start + _filled(finding.found, indent).lstrip())
            if finding.advice:
                lines.append(_filled(f"-> {finding.advice}", indent))
    return "\n".join([*lines, "", summary(report)])


def summary(report: Report) -> str:
    """Return the summary line."""
    counts = f"{report.count(OK)} ok, {count(report.count(WARNING), 'warning')}"
    if report.usable:
        return f"doctor: {report.device} can be used; {counts}"
    problems = count(report.count(PROBLEM), "problem")
    return f"doctor: {report.device} cannot be used; {counts}, {problems}"


def _painted(state: State, width: int, colour: bool) -> str:
    text = f"{state:{width}}"
    return coloured(text, COLOURS[state]) if colour else text


def _filled(text: str, indent: str) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
