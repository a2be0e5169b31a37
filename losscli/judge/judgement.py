"""A candidate that is judged: its file, what it is judged against, and its verdict so far."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from losscli.cases.case import Case
from losscli.implementations.implementation import Implementation
from losscli.implementations.source import Source
from losscli.judge.against_loss import KnownLoss
from losscli.judge.against_model import AnyModel
from losscli.judge.draft import Draft
from losscli.judge.job import Job
from losscli.reasons import Code
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty

Against = KnownLoss | AnyModel


@dataclass
class Judgement:
    """What the stages of a job read and change."""

    job: Job
    device: str
    file: Source
    against: Against
    draft: Draft
    notify: Callable[[str], None]
    waited: float = 0.0
    """Seconds of waiting for the device."""

    def __post_init__(self) -> None:
        self.over = time.monotonic() + self.job.limits.total_seconds

    @property
    def implementation(self) -> Implementation:
        """The candidate, with what is known of it so far."""
        return self.against.candidate

    def problem(self, case: Case) -> Problem:
        """Return the problem of a case for a third-party kernel."""
        setting = self.implementation.setting
        third_party = ThirdParty(setting.lacking, self.against.reference, setting.labels)
        return Problem.of(case, third_party=third_party)

    def check_time(self) -> None:
        """End the judging when its time is over, without blaming the file for waits."""
        late = time.monotonic() - self.over
        told = f"judging took more than {self.job.limits.total_seconds:g} s"
        if late > self.waited:
            self.draft.end(Code.TIMEOUT, told)
        if late > 0:
            waited = f"{self.waited:.0f} s of which it waited for {self.device}"
            self.draft.end(Code.BUSY, f"{told}, {waited}")
