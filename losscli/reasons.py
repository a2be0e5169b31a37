"""Why a result was skipped or failed, or a verdict is what it is: a table of codes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, get_args

Word = Literal[
    "RIGHT",
    "RIGHT BUT NO GRADIENT",
    "SAME ERROR AS PYTORCH",
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


class Said(NamedTuple):
    """A verdict's word as a sentence after a file's name, and in a summary."""

    opening: str
    summary: str = ""


WORDS: dict[Word, Said] = {
    "RIGHT": Said("is right: it passed every check."),
    "RIGHT BUT NO GRADIENT": Said(
        "computes the right loss but has no gradient, so it cannot be used in training.",
        "of them without a gradient",
    ),
    "SAME ERROR AS PYTORCH": Said(
        "is right: where it is wrong, PyTorch's own formula is wrong too.",
        "of them with the same error as PyTorch",
    ),
    "RIGHT WITHIN LIMITS": Said(
        "is right for ordinary operands, but wrong for some special values, dtypes or layouts.",
        "of them within limits",
    ),
    "SLOWER": Said("is right but slower than PyTorch.", "of them slower than PyTorch"),
    "CHEATS": Said("deceives the judge, so neither its results nor its times count.", "cheats"),
    "WRONG": Said("is wrong.", "wrong"),
    "CRASHED": Said("crashed.", "crashed"),
    "HANGS": Said("did not respond in time.", "hangs"),
    "DOES NOT BUILD": Said("cannot be loaded.", "does not build"),
    "NO KERNEL OF ITS OWN": Said(
        "is right, but PyTorch's own kernels do the work.", "without a kernel of its own"
    ),
    "NOT JUDGED": Said("was not judged, which says nothing about the kernel itself.", "not judged"),
}
"""The right ones first, then the others, the worst first: a summary counts in this order."""

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
"""The sides of a kernel that a verdict distinguishes, in its order."""
FACETS: tuple[Facet, ...] = get_args(Facet)
HOME: tuple[Facet, ...] = (
    *("value", "gradient", "sizes", "extreme_values"),
    *("parameters", "reductions", "layouts", "memory"),
)
"""The facets in which a wrong result makes a file WRONG, except for variants that a check calls
limits. In others it is a limit, unless it changes what other code computes."""

_FILE, _CHEAT, _CRASH = "DOES NOT BUILD", "CHEATS", "CRASHED"  # words, short enough for a line
_INDEX = "Look for reads and writes beyond the end of a tensor"

_FORMERLY = {
    "overwrote": "modified_input",
    "patched": "monkey_patched",
    "forged": "wrote_to_channel",
    "misfit": "shape_or_dtype_mismatch",
    "refuses": "unsupported_input",
    "limited": "known_limitation",
    "no_worse_than_torch": "same_error_as_pytorch",
    "slows_others": "interference",
    "clock_disagrees": "timing_tampering",
    "no_room": "insufficient_memory",
    "broke_device": "device_error",
    "device_broken": "device_unusable",
    "quarantined": "device_unhealthy",
    "left_behind": "global_state_leak",
    "wrong_later": "wrong_after_warm_up",
}
"""Present codes by the codes of earlier versions."""


class Code(StrEnum):
    """The codes, each with a verdict's word, its meaning, and what to change.

    The word is empty where no verdict has the code. Among several reasons the first code's word
    counts. A code without advice is a result's, not a verdict's.
    """

    word: Word | Literal[""]
    meaning: str
    advice: str

    def __new__(cls, code: str, word: Word | Literal[""], meaning: str, advice: str = "") -> Code:
        """Make the member of a line of the table."""
        self = str.__new__(cls, code)
        self._value_, self.word, self.meaning, self.advice = code, word, meaning, advice
        return self

    @classmethod
    def _missing_(cls, value: object) -> Code | None:
        return next((code for code in cls if code == _FORMERLY.get(str(value))), None)

    NONE = "", "", "the result is good"

    SYNTAX = (
        *("syntax", _FILE, "the file is not valid Python"),
        "Correct the Python syntax at that place.",
    )
    NOTHING_TO_JUDGE = (
        *("nothing_to_judge", _FILE, "the file defines no loss"),
        "Name a function as FILE:NAME, call it with --call EXPRESSION, or define a function with "
        "the name of a loss or a class ModelNew.",
    )
    AMBIGUOUS = (
        *("ambiguous", _FILE, "the file defines several losses"),
        "Name the one to judge as FILE:NAME, or leave only one in the file.",
    )
    SIGNATURE = (
        *("signature", _FILE, "the arguments of the function do not fit"),
        "Take the loss's operands first, and reduction and the parameters by keyword.",
    )
    IMPORT_FAILED = (
        *("import_failed", _FILE, "importing the file raised an exception"),
        "Make the file import without an error.",
    )
    CONSTRUCTOR_FAILED = (
        *("constructor_failed", _FILE, "constructing the module raised an exception"),
        "Give its arguments defaults, or call it with --call 'NAME(ARGUMENTS)(input, target)'.",
    )
    BUILD_FAILED = (
        *("build_failed", _FILE, "a compiler failed"),
        "Correct the first compiler error; those after it often follow from it.",
    )
    DOES_NOT_BUILD = "does_not_build", "", "the file cannot be imported"

    MONKEY_PATCHED = (
        *("monkey_patched", _CHEAT, "it replaced a function of torch or Python"),
        "Do not replace functions of torch, Python or the clock.",
    )
    WROTE_TO_CHANNEL = (
        *("wrote_to_channel", _CHEAT, "it wrote to the judge's channel"),
        "Write nothing to descriptors that you did not open; return the loss.",
    )
    TIMING_TAMPERING = (
        *("timing_tampering", _CHEAT, "its time disagrees with the judge's clock"),
        "Finish all work on the current stream before the call ends: join side streams and "
        "threads, and compute nothing lazily.",
    )
    INTERFERENCE = (
        *("interference", _CHEAT, "it slows down or blocks what is timed next to it"),
        "Leave no kernel, thread or process running when a call returns, and take none of "
        "losscli's locks.",
    )
    IMPOSSIBLE = (
        *("impossible", _CHEAT, "it is faster than the memory bandwidth allows"),
        "Read every element of every operand in every call.",
    )
    WRONG_AFTER_WARM_UP = (
        *("wrong_after_warm_up", _CHEAT, "it was correct before timing and wrong during it"),
        "Compute every call from its operands; keep no results between calls.",
    )

    TIMEOUT = (
        *("timeout", "HANGS", "it did not respond in time"),
        "Look for a loop or a kernel that never ends, a deadlock, or a wait for another process.",
    )
    HANGS = "hangs", "", "a call did not respond in time"

    PROCESS_DIED = (
        *("process_died", _CRASH, "its process, or the one that measured it, ended"),
        f"{_INDEX}.",
    )
    DEVICE_ERROR = (
        *("device_error", _CRASH, "it left the device unusable"),
        f"{_INDEX}: check each index against the number of elements, and each launch for an error.",
    )
    FLOODED_OUTPUT = "flooded_output", _CRASH, "it wrote too much output", "Print nothing."
    MEMORY_LIMIT = (
        *("memory_limit", _CRASH, "it used more memory than allowed"),
        "Free unused memory, and make no temporaries of the operands' size.",
    )
    RAISED = "raised", _CRASH, "it raised an exception", "Correct the line that raised it."

    WRONG = (
        *("wrong", "WRONG", "its result differs from the oracle's"),
        "Compare the formula with that of the loss, for the smallest case first.",
    )
    SHAPE_OR_DTYPE_MISMATCH = (
        *("shape_or_dtype_mismatch", "WRONG", "its result has the wrong shape or dtype"),
        "Return the loss in the dtype of its operands, and a mean or sum with shape ().",
    )
    MODIFIED_INPUT = (
        *("modified_input", "WRONG", "it modified an operand in place"),
        "Write only to new tensors; the operands belong to the caller.",
    )
    GLOBAL_STATE_LEAK = (
        *("global_state_leak", "WRONG", "it changed a flag, a seed or other state of the process"),
        "Restore every flag, seed, thread count and environment variable that you set.",
    )
    LEFT_PROCESS = (
        *("left_process", "WRONG", "it left a process running"),
        "Start no process, or wait until it has ended before the call returns.",
    )

    UNKNOWN_LOSS = (
        *("unknown_loss", "NOT JUDGED", "losscli cannot tell which loss the file computes"),
        "Name the loss with --loss NAME (`losscli list losses` lists them), or a file with a class "
        "Model with --reference FILE; --call EXPRESSION says how to call it.",
    )
    MISSING_TOOL = (
        *("missing_tool", "NOT JUDGED", "the machine lacks a compiler or a package for the file"),
        "Judge it on a machine that has it: `losscli doctor` shows what is missing here.",
    )
    BAD_REFERENCE = (
        *("bad_reference", "NOT JUDGED", "the reference does not run, or has no gradient"),
        "Correct the reference, not the kernel: a reference has to run in float64 and, to judge "
        "gradients, be differentiable.",
    )
    BAD_JOB = "bad_job", "NOT JUDGED", "the job is invalid", "Correct the job."
    NO_GPU = (
        *("no_gpu", "NOT JUDGED", "a GPU is needed"),
        "Judge it on a machine with a GPU, or with --device cpu.",
    )
    INSUFFICIENT_MEMORY = (
        *("insufficient_memory", "NOT JUDGED", "the case needs more memory than is free"),
        "Judge it at a smaller size, or with more memory.",
    )
    DEVICE_UNHEALTHY = (
        *("device_unhealthy", "NOT JUDGED", "the GPU did not recover from an earlier error"),
        "Judge it again on another GPU, or after a reset of this one.",
    )
    NOT_ISOLATED = (
        *("not_isolated", "NOT JUDGED", "the machine lacks a part of the isolation"),
        "Judge it on a machine with user namespaces, Landlock and seccomp: `losscli doctor "
        "--isolation` shows what is missing.",
    )
    INTERRUPTED = "interrupted", "NOT JUDGED", "a process of losscli was killed", "Judge it again."
    BUSY = (
        *("busy", "NOT JUDGED", "other programs used the device until the time limit"),
        "Judge it again when that process has ended, or with a longer --timeout.",
    )
    ERROR = (
        *("error", "NOT JUDGED", "losscli itself failed"),
        "This is an error of losscli; judge the file again, and report the error if it recurs.",
    )

    NO_OWN_KERNEL = (
        *("no_own_kernel", "NO KERNEL OF ITS OWN", "PyTorch's own kernels do the work"),
        "Launch your own kernel: check whether its build failed and the file fell back to PyTorch.",
    )

    NO_GRADIENT = (
        *("no_gradient", "RIGHT BUT NO GRADIENT", "its loss cannot be differentiated"),
        "Wrap it in a torch.autograd.Function with a backward, and do not detach.",
    )
    KNOWN_LIMITATION = (
        *("known_limitation", "RIGHT WITHIN LIMITS"),
        "it is wrong only for some special values or layouts",
        "Make it right for these if you need them, or raise an error there.",
    )
    SLOWER = (
        *("slower", "SLOWER", "it is slower than PyTorch"),
        "Read each operand once, write the gradient in the same pass, and use all cores or the "
        "whole GPU.",
    )
    SAME_ERROR_AS_PYTORCH = (
        *("same_error_as_pytorch", "SAME ERROR AS PYTORCH"),
        "PyTorch's own formula is as wrong there",
        "Nothing to do.",
    )
    UNSUPPORTED_INPUT = (
        *("unsupported_input", "RIGHT", "it raises an error for operands that it does not support"),
        "An error is not a mistake. Support these operands if you need them.",
    )

    NOT_APPLICABLE = "not_applicable", "", "the implementation or the check does not apply"
    LAYOUT = "layout", "", "the size cannot have the layout"
    OUT_OF_MEMORY = "out_of_memory", "", "the memory ran out"
    DEVICE_UNUSABLE = "device_unusable", "", "an earlier call left the device unusable"
    BUDGET = "budget", "", "the budget of the run was used up"
    THROTTLED = "throttled", "", "every sample was discarded because the GPU was throttled"
    LESS_ACCURATE = "less_accurate", "", "a gradient is less accurate as a whole than one product"


CODES = frozenset(code for code in Code if code.word)


@dataclass(frozen=True)
class Reason:
    """A reason."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text
