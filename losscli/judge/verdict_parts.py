"""The parts of a verdict: reasons, times and errors, and the word that follows from reasons."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from losscli.files.record import Record
from losscli.reasons import Code, Facet, Word
from losscli.runs.measurements import CallSeconds, Ratio

REFERENCE = "reference"
"""The implementation to which times are compared."""

RIGHT_WORDS: tuple[Word, ...] = (
    *("RIGHT", "RIGHT BUT NO GRADIENT", "SAME ERROR AS PYTORCH", "RIGHT WITHIN LIMITS", "SLOWER"),
)
"""The words of candidates that are right for ordinary operands at least."""
SAME = 0.04
"""The width of a ratio's interval around 1 within which two are equally fast."""
Stage = Literal["parse", "build", "small", "checks", "time"]
"""The stages of judging, cheapest first."""


class JudgeReason(Record, frozen=True):
    """One reason of a verdict."""

    code: Code
    stage: Stage
    text: str
    """What was expected and what was given."""
    check: str = ""
    """The check of ``losscli list checks`` that failed, where one did."""
    case: str = ""
    """The smallest case that shows it."""
    repeat: str = ""
    """The line of Python that repeats it."""
    facet: Facet | Literal[""] = ""
    """The side of the kernel that it concerns; empty where that is none."""


class Speed(Record, frozen=True):
    """The time of one pass of one case, compared with others."""

    derived: ClassVar = {"limit_share": "peak_fraction"}

    case: str
    pass_: str
    seconds: CallSeconds
    """Median."""
    ratios: dict[str, tuple[Ratio, Ratio, Ratio]]
    """How many times as fast as each other implementation: value, low and high of the interval."""
    limit_share: float | None = None
    """The former key of ``peak_fraction``."""
    peak_extra_bytes: int | None = None
    """Peak temporary memory, beyond operands, loss and gradient."""

    @property
    def peak_fraction(self) -> float | None:
        """The fraction of peak bandwidth; None where that is unknown."""
        return self.limit_share


class Accuracy(Record, frozen=True):
    """The largest error of the candidate, and PyTorch's own, in the dtypes that are timed."""

    value_ulp: float | None = None
    torch_value_ulp: float | None = None
    gradient_ulp: float | None = None
    torch_gradient_ulp: float | None = None
    deterministic: bool | None = None
    """Whether it is bitwise deterministic; None where that was not tested."""


def word_of(reasons: Sequence[JudgeReason]) -> Word:
    """Return the word of a verdict. Too little memory to time is no reason against it."""
    untimed = (Code.INSUFFICIENT_MEMORY, "time")
    codes = {reason.code for reason in reasons if (reason.code, reason.stage) != untimed}
    if codes & {
        Code.WRONG,
        Code.SHAPE_OR_DTYPE_MISMATCH,
        Code.MODIFIED_INPUT,
        Code.GLOBAL_STATE_LEAK,
    }:
        codes.discard(Code.RAISED)  # what is wrong in some check may raise in others
    return next((code.word for code in Code if code in codes and code.word), "RIGHT")
