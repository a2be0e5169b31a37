"""The parts of a verdict: reasons, times and errors, and the word that follows from reasons."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from losscli.config.check_names import ADVICE
from losscli.files.record import Record
from losscli.implementations import CUSTOM
from losscli.reasons import Code, Facet, Word
from losscli.runs.measurements import CallSeconds, Ratio
from losscli.units import format_bytes, format_seconds

REFERENCE = "reference"
"""The implementation to which times are compared."""

RIGHT_WORDS: tuple[Word, ...] = (
    *("RIGHT", "RIGHT BUT NO GRADIENT", "SAME ERROR AS PYTORCH", "RIGHT WITHIN LIMITS", "SLOWER"),
)
"""The words of candidates that are right for ordinary operands at least."""
_OTHERS = {REFERENCE: "the reference", "compile": "torch.compile", CUSTOM: "losscli's own kernel"}
_OUTCOMES: dict[Code, str] = {
    Code.SAME_ERROR_AS_PYTORCH: "finds it as wrong as PyTorch",
    Code.UNSUPPORTED_INPUT: "got an error",
    Code.KNOWN_LIMITATION: "found a limitation",
}
_WRONG = {Code.WRONG, Code.SHAPE_OR_DTYPE_MISMATCH, Code.MODIFIED_INPUT, Code.GLOBAL_STATE_LEAK}
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

    @property
    def advice(self) -> str:
        """What to change because of it."""
        by_check = advice_of(self.check) if self.code == Code.WRONG else ""
        return by_check or self.code.advice

    def sentences(self, against: str) -> str:
        """Return what failed, how to reproduce it, and what to change."""
        if self.check:
            smallest = f" (smallest case: {self.case})" if self.case else ""
            failed = _OUTCOMES.get(self.code, "failed")
            text = f"The check {self.check} against {against} {failed}{smallest}: {self.text}"
        elif self.case:
            text = f"At {self.case}: {self.text}"
        else:  # it may begin with a file or another name
            is_word = self.text.partition(" ")[0].isalpha()
            text = self.text[:1].upper() + self.text[1:] if is_word else self.text
        repeat = f" To reproduce it: {self.repeat}." if self.repeat else ""
        return f"{ended(text)}{repeat} {self.advice}"


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

    def sentences(self, title: str, count: int) -> str:
        """Return the time of the slowest of ``count`` cases, and what is left to gain."""
        worst = f"the slowest of {count} cases, " if count > 1 else ""
        ordered = sorted(self.ratios.items(), key=lambda item: item[0] != REFERENCE)
        ratios = "; ".join(_ratio(*item) for item in ordered)
        compared = f": {ratios}" if ratios else ""
        text = f"{title} takes {format_seconds(self.seconds)} at {worst}{self.case}{compared}."
        if self.limit_share is not None:
            near = self.limit_share >= 0.9
            left = "there is little" if near else f"at most {1 / self.limit_share:.1f}x is"
            share = f"{self.limit_share:.0%} of the peak memory bandwidth"
            text += f" That is {share}: {left} left to gain."
        if (self.peak_extra_bytes or 0) > 2**20:
            extra = format_bytes(self.peak_extra_bytes or 0)
            text += f" It takes {extra} of temporary memory: fuse the passes that need it."
        return text


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
    if codes & _WRONG:
        codes.discard(Code.RAISED)  # what is wrong in some check may raise in others
    return next((code.word for code in Code if code in codes and code.word), "RIGHT")


def advice_of(check: str) -> str:
    """Return what to change where a check failed, by its result's name; empty if unknown."""
    return ADVICE.get("gradients" if check.endswith("_gradient") else check, "")


def mark(low: float, high: float) -> str:
    """Return the mark before a ratio with this interval, or nothing; see ``MARKS``."""
    if not low < 1 < high:
        return ""
    return "=" if high - low < 0.04 else "?"  # so narrow an interval: equally fast


def ended(text: str) -> str:
    """Return a sentence with its full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _ratio(other: str, ratio: tuple[float, float, float]) -> str:
    value, low, high = ratio
    interval = f"{low:.2f} to {high:.2f}{', inconclusive' if low < 1 < high else ''}"
    return f"{value:.2f}x as fast as {_OTHERS.get(other, other)} ({interval})"
