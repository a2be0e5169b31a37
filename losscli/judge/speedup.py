"""How many times as fast as another implementation a file is, over all cases of a verdict."""

from __future__ import annotations

from statistics import geometric_mean

from losscli.judge.parts import REFERENCE
from losscli.judge.verdict import Verdict


def speedup(verdict: Verdict, pass_: str = "", other: str = REFERENCE) -> float | None:
    """Return the geometric mean of the ratios; None where nothing was timed.

    Args:
        verdict: on the file.
        pass_: ``forward`` or ``forward_backward``; both where empty.
        other: the implementation that it is compared with.
    """
    ratios = [
        timed.ratios[other][0]
        for timed in verdict.speed
        if other in timed.ratios and pass_ in ("", timed.pass_)
    ]
    return geometric_mean(ratios) if ratios else None


def score(verdict: Verdict) -> float:
    """Return one number for a search: 0 where the file is not right, else its speedup.

    What is right and was not timed scores 1.
    """
    if not verdict.right:
        return 0.0
    found = speedup(verdict)
    return 1.0 if found is None else found
