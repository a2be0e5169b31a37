"""Finds the first commit with more of a figure: what is bad, and which commits were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean

from losscli.compare.change import Change
from losscli.compare.figures import ENERGY, FIGURES, TIME
from losscli.compare.revisions import By, Measured, UnmeasurableError
from losscli.errors import UsageError
from losscli.machine.bisection import Mark, Range, check_out
from losscli.machine.commits import SHOWN

Measure = Callable[[Path], By]
"""Measures a checkout, by pass; UnmeasurableError says why it cannot."""
_REPEATS = 5
"""Most measurements of a commit whose interval does not tell which side it is on."""


@dataclass(frozen=True)
class Regression:
    """A figure of a pass of which the bad revision has more than the good one."""

    pass_: str
    figure: str
    limit: float
    found: Measured
    """The bad revision beside the good one."""

    @property
    def _between(self) -> float:
        """The ratio between that of the good revision, 1, and that of the bad one."""
        return math.sqrt(self.found.ratio.value)

    def is_open(self, measured: Measured) -> bool:
        """Tell whether the interval of a time leaves open which of the two it is like."""
        return self.figure == TIME and measured.ratio.low < self._between < measured.ratio.high

    def is_hidden_in(self, measured: Measured) -> bool:
        """Tell whether the interval of a time has room for both sides."""
        ratio, worst = measured.ratio, self.found.ratio.value
        return self.figure == TIME and ratio.low <= 1 and ratio.high >= worst

    def is_in(self, measured: Measured) -> bool:
        """Tell whether a revision has it: its time is nearer to the bad one, or it is larger."""
        if self.figure == TIME:
            return measured.ratio.value > self._between
        return _has_grown(self.figure, measured, self.limit)


@dataclass(frozen=True)
class Culprit:
    """Where a regression began."""

    regression: Regression
    commits: tuple[str, ...]
    """The first commit that has it; several where those before it could not be measured."""
    measured: Measured | None
    """The first commit beside the good revision."""


@dataclass
class Bisect:
    """The search of a range of commits, each of which is measured once for all figures."""

    range: Range
    clone: Path
    """Is checked out at the commits that are measured."""
    measure: Measure
    limits: Mapping[str, float]
    told: Callable[[str], None] = lambda text: None
    """Takes a line for each commit that is measured."""
    measured: dict[str, By] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a commit could not be measured."""

    def culprits(self) -> list[Culprit]:
        """Return the first commit of each regression.

        Raises:
            UsageError: the bad revision cannot be measured, or is not worse.
        """
        bad = self._of(self.range.bad)
        if bad is None:
            raise UsageError(
                f"--bad {self.range.bad[:SHOWN]} cannot be measured beside --good: "
                f"{self.skipped[self.range.bad]}."
            )
        for figure in self.limits:
            of = None if figure == TIME else FIGURES[figure].of
            if of and all(None in (of(each.good), of(each.result)) for each in bad.values()):
                why = next((each.result.no_energy for each in bad.values()), "")
                told = f": {why}" if why and figure == ENERGY else ""
                raise UsageError(f"{figure} could not be measured{told}.")
        limit = self.limits.get(TIME, math.inf)
        bad = {pass_: self._sure(self.range.bad, partial(_hides, limit), pass_) for pass_ in bad}
        found = [
            Regression(pass_, figure, limit, measured)
            for pass_, measured in bad.items()
            for figure, limit in self.limits.items()
            if _has_grown(figure, measured, limit)
        ]
        if not found:
            raise UsageError(f"--bad is not worse than --good: {_told(bad)}. {_ADVICE}")
        return [self._culprit(regression) for regression in found]

    def _culprit(self, regression: Regression) -> Culprit:
        def mark(commit: str) -> Mark:
            measured = self._of(commit)
            if measured is None or regression.pass_ not in measured:
                return "skip"
            sure = self._sure(commit, regression.is_open, regression.pass_)
            if regression.is_hidden_in(sure):
                return "skip"
            return "bad" if regression.is_in(sure) else "good"

        commits = self.range.first_bad(self.clone, mark)
        first = self.measured.get(commits[0], {}).get(regression.pass_)
        return Culprit(regression, tuple(commits), first if len(commits) == 1 else None)

    def _of(self, commit: str) -> By | None:
        """Return what is measured of a commit, once; None where nothing can be."""
        if commit in self.skipped:
            return None
        if commit not in self.measured:
            check_out(self.clone, commit)
            name = f"{commit[:SHOWN]} {self.range.subject(commit)}"
            try:
                self.measured[commit] = self.measure(self.clone)
            except UnmeasurableError as error:
                self.skipped[commit] = str(error).replace(f"{self.clone}/", "")
                self.told(f"{name}: skipped, {self.skipped[commit]}")
                return None
            self.told(f"{name}: {_told(self.measured[commit])}")
        return self.measured[commit]

    def _sure(self, commit: str, is_open: Callable[[Measured], bool], pass_: str) -> Measured:
        """Return what was measured of a pass, again and again while that leaves it open."""
        found = [self.measured[commit][pass_]]
        while is_open(together := _mean(found)) and len(found) < _REPEATS:
            check_out(self.clone, commit)
            try:
                found.append(self.measure(self.clone)[pass_])
            except UnmeasurableError:
                break
        self.measured[commit] = {**self.measured[commit], pass_: together}
        return together


def _mean(found: Sequence[Measured]) -> Measured:
    """Return several measurements as one, whose interval is that of their mean."""
    logs = [math.log(each.ratio.value) for each in found]
    halves = [math.log(each.ratio.high / each.ratio.low) / 2 for each in found]
    value, half = math.exp(mean(logs)), math.hypot(*halves) / len(halves)
    ratio = Change(value, value * math.exp(-half), value * math.exp(half))
    nearest = min(found, key=lambda each: abs(math.log(each.ratio.value) - math.log(value)))
    return replace(nearest, ratio=ratio) if len(found) > 1 else nearest


_ADVICE = "Name other revisions, or give a smaller limit with --fail-on."


def _hides(limit: float, measured: Measured) -> bool:
    """Tell whether noise leaves open that a revision is slower by more than a limit."""
    return measured.ratio.low <= 1 and measured.ratio.high > 1 + limit


def _has_grown(figure: str, measured: Measured, limit: float) -> bool:
    if figure == TIME:
        return measured.ratio.value > 1 + limit and measured.ratio.low > 1
    of = FIGURES[figure].of
    before, after = of(measured.good), of(measured.result)
    if before is None or after is None:
        return False
    return FIGURES[figure].grown(before, after, measured.ratio, limit)


def _told(by: By) -> str:
    """Return the ratio of the times and the memory of each pass."""
    text = FIGURES["memory"].text
    parts = []
    for pass_, measured in by.items():
        ratio, bytes_ = measured.ratio, measured.result.peak_extra_bytes
        memory = "" if bytes_ is None else f", {text(bytes_)}"
        time = f"{ratio.value:.3f} ({ratio.low:.3f}-{ratio.high:.3f}) of the time"
        parts.append(f"{pass_.replace('_', '+')} {time}{memory}")
    return "; ".join(parts)
