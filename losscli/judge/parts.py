"""The parts of a verdict: its reasons, times and errors, and the word that reasons lead to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Literal

from losscli.reasons import Code
from losscli.record import Record

REFERENCE = "reference"
"""The implementation that a file's times are compared with."""

Word = Literal[
    "RIGHT",
    "RIGHT BUT NO GRADIENT",
    "NO WORSE THAN TORCH",
    "RIGHT WITHIN LIMITS",
    "SLOWER",
    "WRONG",
    "CHEATS",
    "CRASHED",
    "HANGS",
    "DOES NOT BUILD",
    "NOT JUDGED",
]
"""What a verdict says in a word or two.

``RIGHT`` all checks passed, and where it was timed it is not slower than PyTorch; ``RIGHT BUT NO
GRADIENT`` the loss is right, but nothing can be trained with it; ``NO WORSE THAN TORCH`` what it
gets wrong, PyTorch's own formula gets wrong as well; ``RIGHT WITHIN LIMITS`` it is wrong for NaN,
infinities and other special values, mixed dtypes or layouts alone; ``SLOWER`` right, but slower
than PyTorch; ``WRONG`` a check failed; ``CHEATS`` it deceives a judge or a clock; ``CRASHED`` it
raised, or its process ended; ``HANGS`` it did not answer in time; ``DOES NOT BUILD`` it cannot be
loaded; ``NOT JUDGED`` this machine could not judge it.
"""
RIGHT_WORDS: tuple[Word, ...] = (
    *("RIGHT", "RIGHT BUT NO GRADIENT", "NO WORSE THAN TORCH", "RIGHT WITHIN LIMITS", "SLOWER"),
)
"""The words of candidates whose results are right, of ordinary operands at least."""
WORDS: dict[Word, tuple[Code, ...]] = {
    "DOES NOT BUILD": (
        *("syntax", "nothing_to_judge", "ambiguous", "signature"),
        *("import_failed", "build_failed"),
    ),
    "CHEATS": (
        *("patched", "forged", "clock_disagrees", "slows_others", "impossible", "wrong_later"),
    ),
    "HANGS": ("timeout",),
    "CRASHED": ("process_died", "broke_device", "flooded_output", "memory_limit", "raised"),
    "WRONG": ("wrong", "misfit", "overwrote", "left_behind", "left_process"),
    "NOT JUDGED": (
        *("bad_reference", "bad_job", "no_gpu", "no_room", "quarantined", "not_isolated"),
        *("interrupted", "busy", "error"),
    ),
    "RIGHT BUT NO GRADIENT": ("no_gradient",),
    "RIGHT WITHIN LIMITS": ("limited",),
    "SLOWER": ("slower",),
    "NO WORSE THAN TORCH": ("no_worse_than_torch",),
}
"""The words, each with the codes that lead to it: of several, the first here is said."""
CODES: frozenset[Code] = frozenset(("refuses", *chain.from_iterable(WORDS.values())))
"""The codes that a reason of a verdict may have."""

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


class Speed(Record, frozen=True):
    """The time of one pass of one case, beside others."""

    case: str
    pass_: str
    seconds: float
    """Median."""
    ratios: dict[str, tuple[float, float, float]]
    """How many times as fast as each other implementation: value, low and high of the interval."""
    limit_share: float | None = None
    """The part of the speed of the memory that it reaches; None where the limit is unknown."""
    peak_extra_bytes: int | None = None
    """The memory beyond operands, loss and gradient."""


class Accuracy(Record, frozen=True):
    """The largest error of the candidate, and PyTorch's own, in the dtypes that are timed."""

    value_ulp: float | None = None
    torch_value_ulp: float | None = None
    gradient_ulp: float | None = None
    torch_gradient_ulp: float | None = None
    deterministic: bool | None = None
    """Whether each run gives the same bits; None where that was not tested."""


def word_of(reasons: Sequence[JudgeReason]) -> Word:
    """Return the word of a verdict; what only cannot be timed for lack of memory was checked."""
    untimed = ("no_room", "time")
    codes = {reason.code for reason in reasons if (reason.code, reason.stage) != untimed}
    if codes & {"wrong", "misfit", "overwrote", "left_behind"}:
        codes.discard("raised")  # what is wrong in some check may raise in others
    return next((word for word, leading in WORDS.items() if codes & {*leading}), "RIGHT")
