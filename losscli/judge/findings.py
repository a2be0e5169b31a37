"""What the stages of judging have found so far."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from losscli.judge.reasoning import word_of
from losscli.judge.verdict import Accuracy, JudgeReason, Speed, Stage


@dataclass
class Findings:
    """What the stages have found so far."""

    reasons: list[JudgeReason] = field(default_factory=list)
    checks: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    speed: list[Speed] = field(default_factory=list)
    accuracy: Accuracy = field(default_factory=Accuracy)
    trains: bool | None = None
    isolation: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether something keeps it from being right."""
        return word_of(self.reasons) not in (
            "RIGHT",
            "NO WORSE THAN TORCH",
            "RIGHT BUT NO GRADIENT",
        )

    def end(self, reason: JudgeReason) -> NoReturn:
        """Take the reason that ends the judging.

        Raises:
            Ended: always.
        """
        self.reasons.append(reason)
        raise Ended


class Ended(Exception):  # noqa: N818 - the verdict is known
    """A stage has found what ends the judging."""


@contextlib.contextmanager
def stage(found: Findings, name: Stage) -> Iterator[None]:
    """Take the time of a stage."""
    start = time.monotonic()
    try:
        yield
    finally:
        found.seconds[name] = round(time.monotonic() - start, 3)
