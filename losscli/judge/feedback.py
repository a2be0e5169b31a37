"""What a verdict says to a language model, or to a person: what failed, and what to change."""

from collections.abc import Iterator, Sequence

from losscli.config.check_names import ADVICE
from losscli.implementations import CUSTOM
from losscli.judge.verdict_parts import REFERENCE, JudgeReason, Speed
from losscli.reasons import WORDS, Code, Word
from losscli.units import format_bytes, format_seconds

MOST_REASONS = 3
"""More reasons would hide which of them to start with."""
NEAR_LIMIT = 0.9
"""The part of the limit from which little is left to gain."""
MUCH_MEMORY = 2**20
"""Bytes beyond the operands from which a kernel is told that it takes too much."""

PASSES = {"forward": "Forward", "forward_backward": "Forward and backward"}
OTHERS = {REFERENCE: "the reference", "compile": "torch.compile", CUSTOM: "losscli's own kernel"}

_OUTCOMES: dict[Code, str] = {
    Code.NO_WORSE_THAN_TORCH: "found it as wrong as PyTorch",
    Code.REFUSES: "got an exception",
    Code.LIMITED: "found a limit",
}
"""What a check did that did not fail."""


def advice_of(check: str) -> str:
    """Return what to change where a check failed, by the name of its result; empty of none."""
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
    """Return a few sentences on one line: the verdict, its reasons, what to change, the speed."""
    opening = WORDS[word].opening
    if word == "RIGHT" and reasons:
        opening = "is right, but raises an error for some inputs."
    parts = [f"{name} {opening}", *_reasons(reasons, against)]
    if deterministic is False:
        parts.append("Its results differ from run to run.")
    parts += _speeds(speed)
    return " ".join(parts)


def _reasons(reasons: Sequence[JudgeReason], against: str) -> Iterator[str]:
    for reason in reasons[:MOST_REASONS]:
        yield _reason(reason, against)
    more = len(reasons) - MOST_REASONS
    if more > 0:
        yield f"{more} more {'reason' if more == 1 else 'reasons'} may follow from these."


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


def _speeds(speed: Sequence[Speed]) -> Iterator[str]:
    """Return, of each pass, the time of the case that does worst."""
    for pass_, name in PASSES.items():
        timed = [each for each in speed if each.pass_ == pass_]
        if timed:
            yield from _speed(min(timed, key=_rank), name, len(timed))


def _speed(timed: Speed, name: str, count: int) -> Iterator[str]:
    worst = f"the slowest of {count} cases, {timed.case}," if count > 1 else timed.case
    ordered = sorted(timed.ratios.items(), key=lambda item: item[0] != REFERENCE)
    ratios = "; ".join(_ratio(*item) for item in ordered)
    compared = f": {ratios}" if ratios else ""
    yield f"{name} at {worst} takes {format_seconds(timed.seconds)}{compared}."
    if timed.limit_share is not None:
        share = f"That is {timed.limit_share:.0%} of the peak bandwidth"
        if timed.limit_share < NEAR_LIMIT:
            yield f"{share}: at most {1 / timed.limit_share:.1f}x is left to gain."
        else:
            yield f"{share}: there is little left to gain."
    if (timed.peak_extra_bytes or 0) > MUCH_MEMORY:
        extra = format_bytes(timed.peak_extra_bytes or 0)
        yield f"It needs {extra} of temporary memory: fuse the passes that use it."


def _ratio(other: str, ratio: tuple[float, float, float]) -> str:
    value, low, high = ratio
    undecided = ", undecided" if low < 1 < high else ""
    return (
        f"{value:.2f}x as fast as {OTHERS.get(other, other)} ({low:.2f} to {high:.2f}{undecided})"
    )


def _rank(timed: Speed) -> float:
    ratio = timed.ratios.get(REFERENCE)
    return ratio[0] if ratio else -timed.seconds


def _capital(text: str) -> str:
    """Begin a sentence with a capital, unless it begins with the name of a file or of a thing."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def ended(text: str) -> str:
    """Return a sentence with its full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
