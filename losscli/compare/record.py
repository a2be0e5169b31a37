"""A comparison as ``losscli compare --format json`` writes it, to be read again."""

from __future__ import annotations

from typing import Any

from losscli.compare.comparison import Mean
from losscli.compare.noise import Noise
from losscli.record import Record
from losscli.runs.judgements import Judgement


class Unlike(Record, frozen=True):
    """A fact in which the machines of both runs differ."""

    fact: str
    before: Any = None
    after: Any = None
    grade: str = ""


class ComparedRow(Record, frozen=True):
    """One implementation and pass of a case, timed in both runs."""

    run: str
    case: str
    pass_: str
    implementation: str
    ratio: float
    ratio_low: float
    ratio_high: float
    verdict: Judgement
    mode: str = ""
    cache: str = ""
    table: str = ""
    seconds_before: float | None = None
    seconds_after: float | None = None
    control: bool = False
    regression: bool = False
    undecided: bool = False


class Untimed(Record, frozen=True):
    """A row that only one of the runs timed."""

    case: str
    pass_: str
    implementation: str
    status: str = ""
    reason: str = ""


class ComparedRun(Record, frozen=True):
    """A run against the baseline."""

    run: str
    comparable: bool = True
    differences: tuple[Unlike, ...] = ()
    noise: float = 0.0
    controls: int = 0
    noises: tuple[Noise, ...] = ()
    rows: tuple[ComparedRow, ...] = ()
    means: tuple[Mean, ...] = ()
    only_before: tuple[Untimed, ...] = ()
    only_after: tuple[Untimed, ...] = ()


class ComparisonRecord(Record, frozen=True):
    """Runs against a baseline."""

    baseline: str
    comparisons: tuple[ComparedRun, ...]
    threshold: float | None = None
    failed: bool = False
    confidence: float = 0.0
