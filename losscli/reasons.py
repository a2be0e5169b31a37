"""Why a result was skipped or failed, or a verdict is what it is: a table of codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal, get_args

Word = Literal[
    "RIGHT",
    "RIGHT BUT NO GRADIENT",
    "NO WORSE THAN TORCH",
    "RIGHT WITHIN LIMITS",
    "SLOWER",
    "NO KERNEL OF ITS OWN",
    "WRONG",
    "CHEATS",
    "CRASHED",
    "HANGS",
    "DOES NOT BUILD",
    "NOT JUDGED",
]
"""What a verdict says in a word or two; ``reasons.toml`` has what each means."""

Facet = Literal[
    "value",
    "gradient",
    "sizes",
    "extreme_values",
    "parameters",
    "reductions",
    "dtypes",
    "layouts",
    "streams_and_graphs",
    "repeated_backward",
    "second_derivatives",
    "inputs",
    "global_state",
    "determinism",
    "memory",
]
"""The sides of a kernel that a verdict tells apart, in the order in which it lists them."""
FACETS: tuple[Facet, ...] = get_args(Facet)
HOME: frozenset[Facet] = frozenset(
    {
        *("value", "gradient", "sizes", "extreme_values"),
        *("parameters", "reductions", "layouts", "memory"),
    }
)
"""The facets in which a wrong result makes a file WRONG, except for variants that a check calls
limits. In others it is a limit of the kernel, unless it changes what other code computes."""


class Code(StrEnum):
    """The codes, each with the word of a verdict; ``reasons.toml`` says what they mean.

    The word is empty where no verdict has the code. Of several reasons the first word here is said.
    """

    word: Word | Literal[""]

    def __new__(cls, code: str, word: Word | Literal[""] = "") -> Code:
        """Make a member of a line of the table."""
        self = str.__new__(cls, code)
        self._value_, self.word = code, word
        return self

    @property
    def meaning(self) -> str:
        """What happened."""
        return texts()["codes"][self]["means"]

    @property
    def advice(self) -> str:
        """What to change; empty where the code is that of a result, not of a verdict."""
        return texts()["codes"][self].get("advice", "")

    NONE = ""

    SYNTAX = "syntax", "DOES NOT BUILD"
    NOTHING_TO_JUDGE = "nothing_to_judge", "DOES NOT BUILD"
    AMBIGUOUS = "ambiguous", "DOES NOT BUILD"
    SIGNATURE = "signature", "DOES NOT BUILD"
    IMPORT_FAILED = "import_failed", "DOES NOT BUILD"
    BUILD_FAILED = "build_failed", "DOES NOT BUILD"
    DOES_NOT_BUILD = "does_not_build"

    PATCHED = "patched", "CHEATS"
    FORGED = "forged", "CHEATS"
    CLOCK_DISAGREES = "clock_disagrees", "CHEATS"
    SLOWS_OTHERS = "slows_others", "CHEATS"
    IMPOSSIBLE = "impossible", "CHEATS"
    WRONG_LATER = "wrong_later", "CHEATS"

    TIMEOUT = "timeout", "HANGS"
    HANGS = "hangs"

    PROCESS_DIED = "process_died", "CRASHED"
    BROKE_DEVICE = "broke_device", "CRASHED"
    FLOODED_OUTPUT = "flooded_output", "CRASHED"
    MEMORY_LIMIT = "memory_limit", "CRASHED"
    RAISED = "raised", "CRASHED"

    WRONG = "wrong", "WRONG"
    MISFIT = "misfit", "WRONG"
    OVERWROTE = "overwrote", "WRONG"
    LEFT_BEHIND = "left_behind", "WRONG"
    LEFT_PROCESS = "left_process", "WRONG"

    UNKNOWN_LOSS = "unknown_loss", "NOT JUDGED"
    MISSING_TOOL = "missing_tool", "NOT JUDGED"
    BAD_REFERENCE = "bad_reference", "NOT JUDGED"
    BAD_JOB = "bad_job", "NOT JUDGED"
    NO_GPU = "no_gpu", "NOT JUDGED"
    NO_ROOM = "no_room", "NOT JUDGED"
    QUARANTINED = "quarantined", "NOT JUDGED"
    NOT_ISOLATED = "not_isolated", "NOT JUDGED"
    INTERRUPTED = "interrupted", "NOT JUDGED"
    BUSY = "busy", "NOT JUDGED"
    ERROR = "error", "NOT JUDGED"

    NO_OWN_KERNEL = "no_own_kernel", "NO KERNEL OF ITS OWN"

    NO_GRADIENT = "no_gradient", "RIGHT BUT NO GRADIENT"
    LIMITED = "limited", "RIGHT WITHIN LIMITS"
    SLOWER = "slower", "SLOWER"
    NO_WORSE_THAN_TORCH = "no_worse_than_torch", "NO WORSE THAN TORCH"
    REFUSES = "refuses", "RIGHT"

    NOT_APPLICABLE = "not_applicable"
    LAYOUT = "layout"
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_BROKEN = "device_broken"
    THROTTLED = "throttled"
    LESS_ACCURATE = "less_accurate"


CODES = frozenset(code for code in Code if code.word)


@cache
def texts() -> dict[str, dict[str, dict[str, str]]]:
    """Return what ``reasons.toml`` says of ``words`` and of ``codes``."""
    import tomllib  # few commands need it
    from importlib.resources import files

    return tomllib.loads(files("losscli").joinpath("reasons.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Reason:
    """A reason."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text
