"""What the results of checks and of the bench come to: the codes and the word of a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from losscli.judge.parts import JudgeReason, ReasonCode, Word

WORDS: tuple[tuple[Word, tuple[ReasonCode, ...]], ...] = (
    (
        "DOES NOT BUILD",
        (
            *("syntax", "nothing_to_judge", "ambiguous", "signature"),
            *("import_failed", "build_failed"),
        ),
    ),
    ("CHEATS", ("patched", "forged", "clock_disagrees", "impossible", "wrong_later")),
    ("HANGS", ("timeout",)),
    (
        "CRASHED",
        ("process_died", "broke_device", "flooded_output", "memory_limit", "raised"),
    ),
    ("WRONG", ("wrong", "overwrote", "left_behind", "left_process")),
    (
        "NOT JUDGED",
        (
            *("bad_reference", "bad_job", "no_gpu", "no_room", "quarantined", "interrupted"),
            "error",
        ),
    ),
    ("RIGHT BUT NO GRADIENT", ("no_gradient",)),
    ("SLOWER", ("slower",)),
    ("NO WORSE THAN TORCH", ("no_worse_than_torch",)),
)
"""The words, each with the codes that lead to it: of several, the first here is said."""

_CODES: dict[str, ReasonCode] = {
    "hangs": "timeout",
    "does_not_build": "build_failed",
    "": "wrong",
}
"""The codes of results that a verdict calls otherwise."""
_KNOWN = {code for _, codes in WORDS for code in codes}
_LEFT_BEHIND, _REPLACED = "left behind: ", "functions of "


def reason_of(code: str, text: str) -> ReasonCode:
    """Return the code of a verdict for that of a result, and its text."""
    if _LEFT_BEHIND in text and _REPLACED in text:
        return "patched"
    if code in _CODES:
        return _CODES[code]
    return code if code in _KNOWN else "wrong"


def word_of(reasons: Sequence[JudgeReason]) -> Word:
    """Return the word of a verdict; what only cannot be timed for lack of memory was checked."""
    untimed = ("no_room", "time")
    codes = {reason.code for reason in reasons if (reason.code, reason.stage) != untimed}
    if codes & {"wrong", "overwrote", "left_behind"}:
        codes.discard("raised")  # what is wrong in some check may raise in others
    return next((word for word, leading in WORDS if codes & set(leading)), "RIGHT")
