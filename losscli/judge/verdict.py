"""A verdict on one file: plain data, of which a person reads a block and a program the JSON."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from losscli.judge.feedback import feedback
from losscli.judge.parts import Accuracy, JudgeReason, Speed, Word
from losscli.record import Record


class Verdict(Record, frozen=True):
    """The verdict on one file."""

    derived: ClassVar = {"reasons": "feedback"}

    id: str
    """Of the job; the path where the job has none."""
    file: str
    """The file as it was named, with its revision and function."""
    word: Word
    against: str
    """What it was judged against: the name of a loss, or ``Model``, or another file."""
    device: str
    reasons: tuple[JudgeReason, ...] = ()
    speed: tuple[Speed, ...] = ()
    accuracy: Accuracy = Accuracy()
    checks: dict[str, int] = msgspec.field(default_factory=dict)
    """How many checks passed, warned, failed and were skipped."""
    trains: bool | None = None
    """Whether it has a gradient; None where that was not reached."""
    isolation: tuple[str, ...] = ()
    """What the worker was closed in by: ``session``, ``pid``, ``network``, ``files`` and so on."""
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """How long each stage took."""
    log: str = ""
    """The end of what it wrote."""
    sha256: str = ""
    """Of the source that was judged."""
    losscli: str = ""
    """The version that judged it."""
    torch: str = ""
    machine: str = ""
    cached: bool = False
    """Whether it was found in the cache: the same source was judged in the same way before."""

    @property
    def feedback(self) -> str:
        """What to change, in sentences made for a model, or for a person, to act on."""
        name = self.file or self.id
        return feedback(
            name, self.word, self.against, self.reasons, self.speed, self.accuracy.deterministic
        )

    @property
    def right(self) -> bool:
        """Whether what it computes is right."""
        return self.word in RIGHT_WORDS

    @property
    def exit_code(self) -> int:
        """The exit code of ``losscli judge`` for this file alone."""
        if self.right:
            return 0
        return {"DOES NOT BUILD": 3, "NOT JUDGED": 4}.get(self.word, 1)


RIGHT_WORDS: tuple[Word, ...] = ("RIGHT", "RIGHT BUT NO GRADIENT", "NO WORSE THAN TORCH", "SLOWER")
"""The words of candidates whose results are right."""
