"""A candidate that is judged: its file, what it is judged against, and its verdict until now."""

import time
from collections.abc import Callable

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


class Judgement:
    """What the stages of a job read and change."""

    def __init__(
        self,
        job: Job,
        device: str,
        file: Source,
        against: Against,
        draft: Draft,
        notify: Callable[[str], None],
    ) -> None:
        self.job, self.device, self.file, self.against = job, device, file, against
        self.draft, self.notify = draft, notify
        draft.optional, draft.given = against.others, against.parameters
        draft.usual = against.usual_reductions
        self.over = time.monotonic() + job.limits.total_seconds
        self.waited = 0.0
        """Seconds of waiting for the device."""

    @property
    def implementation(self) -> Implementation:
        """The candidate, with what is known of it until now."""
        return self.against.candidate

    def problem(self, case: Case) -> Problem:
        """Return the problem of a case, of a kernel of others."""
        setting = self.implementation.setting
        third_party = ThirdParty(setting.lacking, self.against.reference, setting.labels)
        return Problem.of(case, third_party=third_party)

    def check_time(self) -> None:
        """End the judging when its time is over; a wait for others is no fault of the file."""
        late = time.monotonic() - self.over
        told = f"judging took more than {self.job.limits.total_seconds:g} s"
        if late > self.waited:
            self.draft.end(Code.TIMEOUT, told)
        if late > 0:
            waited = f"{self.waited:.0f} s of which it waited for {self.device}"
            self.draft.end(Code.BUSY, f"{told}, {waited}")
