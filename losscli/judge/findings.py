"""What the stages of judging have found so far."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from losscli.implementations.errors import NotBuiltError, SandboxError, SubjectError
from losscli.judge.parts import Accuracy, JudgeReason, ReasonCode, Speed, Stage
from losscli.judge.reasoning import reason_of, word_of
from losscli.judge.verdict import RIGHT_WORDS


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
        return word_of(self.reasons) not in RIGHT_WORDS

    def end(self, reason: JudgeReason) -> NoReturn:
        """Take the reason that ends the judging.

        Raises:
            Ended: always.
        """
        self.reasons.append(reason)
        raise Ended


@dataclass(frozen=True)
class Deadline:
    """When judging a file has to be over."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    def check(self, found: Findings, name: Stage) -> None:
        """End the judging when its time is over."""
        if time.monotonic() > self.start + self.seconds:
            text = f"judging took more than {self.seconds:g} s"
            found.end(JudgeReason("timeout", name, text))


def code_of(error: SubjectError) -> ReasonCode:
    """Return the code of what a call has raised."""
    code = error.code if isinstance(error, SandboxError) else "wrong" if error.wrong else "raised"
    return reason_of(code, str(error))


def build_code_of(error: SubjectError) -> ReasonCode:
    """Return the code of what an import, or the first use of what was imported, has raised."""
    if isinstance(error, NotBuiltError):
        return "build_failed" if error.compiler else "import_failed"
    return code_of(error) if isinstance(error, SandboxError) else "import_failed"


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
