"""Turn a verdict into sentences for a language model or a person: what failed, what to change."""

from collections.abc import Iterator, Sequence

from losscli.config.check_names import ADVICE
from losscli.implementations import CUSTOM
from losscli.judge.verdict_parts import REFERENCE, JudgeReason, Speed
from losscli.reasons import WORDS, Code, Word
from losscli.units import format_bytes, format_seconds

MOST_REASONS = 3
"""More reasons would hide where to start."""
NEAR_LIMIT = 0.9
"""The fraction of the limit from which little can be gained."""
MUCH_MEMORY = 2**20
"""Temporary memory from which a kernel is told that it takes too much."""

PASSES = {"forward": "Forward", "forward_backward": "Forward and backward"}
OTHERS = {REFERENCE: "the reference", "compile": "torch.compile", CUSTOM: "losscli's own kernel"}

_OUTCOMES: dict[Code, str] = {
    Code.SAME_ERROR_AS_PYTORCH: "finds it as wrong as PyTorch",
    Code.UNSUPPORTED_INPUT: "got an error",
    Code.KNOWN_LIMITATION: "found a limitation",
}


def advice_of(check: str) -> str:
    """Return what to change where a check failed, by its result's name; empty if unknown."""
    return ADVICE.get("gradients" if check.endswith("_gradient") else check, "")


def advice(reason: JudgeReason) -> str:
    """Return what to change because of a reason."""
    by_check = advice_of(reason.check) if reason.code == Code.WRONG else ""
    return by_check or reason.code.advice


def feedback(
    name: str,
    word: Word,
    against: str,
    reasons: Sequence[JudgeReason],
    speed: Sequence[Speed],
    deterministic: bool | None,
) -> str:
    """Return a few sentences on one line: verdict, reasons, advice, speed."""
    opening = WORDS[word].opening
    if word == "RIGHT" and reasons:
        opening = "is right, but raises an error for some inputs."
    parts = [f"{name} {opening}", *(_reason(each, against) for each in reasons[:MOST_REASONS])]
    if (more := len(reasons) - MOST_REASONS) > 0:
        parts.append(f"{more} more {'reason' if more == 1 else 'reasons'} may follow from these.")
    if deterministic is False:
        parts.append("Its results differ from run to run.")
    for pass_, title in PASSES.items():
        if timed := [each for each in speed if each.pass_ == pass_]:
            parts += _speed(min(timed, key=_rank), title, len(timed))
    return " ".join(parts)


def _reason(reason: JudgeReason, against: str) -> str:
    if reason.check:
        smallest = f" (smallest case: {reason.case})" if reason.case else ""
        failed = _OUTCOMES.get(reason.code, "failed")
        text = f"The check {reason.check} against {against} {failed}{smallest}: {reason.text}"
    else:
        text = f"At {reason.case}: {reason.text}" if reason.case else _capital(reason.text)
    parts = [ended(text)]
    if reason.repeat:
        parts.append(f"To reproduce it: {reason.repeat}.")
    return " ".join([*parts, advice(reason)])


def _speed(timed: Speed, name: str, count: int) -> Iterator[str]:
    worst = f"the slowest of {count} cases, " if count > 1 else ""
    ordered = sorted(timed.ratios.items(), key=lambda item: item[0] != REFERENCE)
    ratios = "; ".join(_ratio(*item) for item in ordered)
    compared = f": {ratios}" if ratios else ""
    yield f"{name} takes {format_seconds(timed.seconds)} at {worst}{timed.case}{compared}."
    if timed.limit_share is not None:
        near = timed.limit_share >= NEAR_LIMIT
        left = "there is little" if near else f"at most {1 / timed.limit_share:.1f}x is"
        share = f"{timed.limit_share:.0%} of the peak memory bandwidth"
        yield f"That is {share}: {left} left to gain."
    if (timed.peak_extra_bytes or 0) > MUCH_MEMORY:
        extra = format_bytes(timed.peak_extra_bytes or 0)
        yield f"It takes {extra} of temporary memory: fuse the passes that need it."


def _ratio(other: str, ratio: tuple[float, float, float]) -> str:
    value, low, high = ratio
    interval = f"{low:.2f} to {high:.2f}{', inconclusive' if low < 1 < high else ''}"
    return f"{value:.2f}x as fast as {OTHERS.get(other, other)} ({interval})"


def _rank(timed: Speed) -> float:
    ratio = timed.ratios.get(REFERENCE)
    return ratio[0] if ratio else -timed.seconds


def _capital(text: str) -> str:
    """Capitalize a sentence unless it begins with a file or another name."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def ended(text: str) -> str:
    """Return a sentence with its full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
