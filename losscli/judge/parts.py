"""The parts of a verdict: its word, its reasons, times and errors."""

from __future__ import annotations

from typing import Literal

from losscli.record import Record

REFERENCE = "reference"
"""The implementation that a file's times are compared with."""

Word = Literal[
    "RIGHT",
    "RIGHT BUT NO GRADIENT",
    "NO WORSE THAN TORCH",
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
gets wrong, PyTorch's own formula gets wrong as well; ``SLOWER`` right, but slower than PyTorch;
``WRONG`` a check failed; ``CHEATS`` it deceives a judge or a clock; ``CRASHED`` it raised, or its
process ended; ``HANGS`` it did not answer in time; ``DOES NOT BUILD`` it cannot be loaded; ``NOT
JUDGED`` this machine could not judge it.
"""

ReasonCode = Literal[
    "syntax",
    "nothing_to_judge",
    "ambiguous",
    "signature",
    "import_failed",
    "build_failed",
    "wrong",
    "no_gradient",
    "no_worse_than_torch",
    "refuses",
    "overwrote",
    "left_behind",
    "left_process",
    "patched",
    "forged",
    "wrong_later",
    "clock_disagrees",
    "impossible",
    "slower",
    "raised",
    "process_died",
    "broke_device",
    "flooded_output",
    "memory_limit",
    "timeout",
    "bad_reference",
    "bad_job",
    "no_gpu",
    "no_room",
    "quarantined",
    "interrupted",
    "error",
]
"""Why, for programs.

DOES NOT BUILD: ``syntax`` it is no Python, ``nothing_to_judge`` it defines no loss, ``ambiguous``
it defines several, ``signature`` its arguments do not fit, ``import_failed`` it raised while it was
imported, ``build_failed`` a compiler failed. WRONG: ``wrong`` by the oracle or the reference,
``overwrote`` an operand, ``left_behind`` flags, seeds or threads that it changed, ``left_process``
a process that it started and left. CHEATS: ``patched`` it replaced a function of torch or Python,
``forged`` it wrote to the judge's channel, ``wrong_later`` right when checked and wrong while
timed, ``clock_disagrees`` the judge's clock and its own disagree, ``impossible`` faster than the
memory. RIGHT: ``refuses`` it raises for operands that it does not take, as of other layouts or
shapes. CRASHED: ``raised`` an exception, ``process_died``, ``broke_device`` an illegal access on
the GPU, ``flooded_output`` it wrote too much, ``memory_limit`` it took too much memory. HANGS:
``timeout``. NOT JUDGED: ``bad_reference`` the reference does not run or has no gradient,
``bad_job`` a job that makes no sense, ``no_gpu``, ``no_room``, ``quarantined`` a GPU that did not
recover, ``interrupted``, ``error`` of losscli itself.
"""

Stage = Literal["parse", "build", "small", "checks", "time"]
"""The stages of judging, cheapest first."""


class JudgeReason(Record, frozen=True):
    """One reason of a verdict."""

    code: ReasonCode
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
    """The largest error of the candidate, beside PyTorch's own."""

    value_ulp: float | None = None
    torch_value_ulp: float | None = None
    gradient_ulp: float | None = None
    torch_gradient_ulp: float | None = None
    deterministic: bool | None = None
    """Whether each run gives the same bits; None where that was not tested."""
