"""How operands are split over ranks, and for which losses; without torch."""

from collections.abc import Mapping
from typing import Final, Literal

Placement = Literal["", "vocabulary"]
WHOLE: Final = ""
VOCABULARY: Final = "vocabulary"
PLACEMENTS: tuple[Placement, ...] = (VOCABULARY,)
"""``vocabulary``: each rank has some of the classes of every row."""

_LOGITS, _PAIR, _WEIGHT = {"input": 1}, {"input": -1, "target": -1}, {"linear_weight": 0}
CUTS: Mapping[str, Mapping[str, int]] = {
    "cross_entropy": _LOGITS,
    "token_log_probs": {"logits": -1},
    "kl_divergence": _PAIR,
    "masked_kl_divergence": _PAIR,
    "reverse_kl_divergence": _PAIR,
    "masked_reverse_kl_divergence": _PAIR,
    "linear_cross_entropy": _WEIGHT,
    "biased_linear_cross_entropy": {**_WEIGHT, "linear_bias": 0},
    "linear_token_log_probs": _WEIGHT,
    "biased_linear_token_log_probs": {**_WEIGHT, "linear_bias": 0},
}
"""The losses that can be split, with the operands to cut and their class dimension (or their last).
Every rank has all other operands."""


def dimension(cut: int, dimensions: int) -> int:
    """Return an operand's class dimension."""
    return cut % dimensions if cut < 0 else min(cut, dimensions - 1)


def share(classes: int, ranks: int, rank: int = 0) -> tuple[int, int]:
    """Return a rank's first class and number of classes, split as ``DTensor`` does."""
    most = -(-classes // ranks)
    first = min(rank * most, classes)
    return first, min(first + most, classes) - first
