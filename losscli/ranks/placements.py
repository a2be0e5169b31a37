"""The ways in which operands are split over ranks, and which losses have them. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Placement = Literal["", "vocabulary"]
WHOLE: Placement
VOCABULARY: Placement
WHOLE, VOCABULARY = get_args(Placement)
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
"""The losses that can be split: the operands that are cut, each with the dimension of the classes,
or the last where it has fewer. Every rank has the whole of all others."""


def dimension(cut: int, dimensions: int) -> int:
    """Return the dimension of the classes of an operand with so many dimensions."""
    return cut % dimensions if cut < 0 else min(cut, dimensions - 1)


def share(classes: int, ranks: int, rank: int = 0) -> tuple[int, int]:
    """Return the first class of a rank, and how many it has.

    As ``DTensor`` splits a dimension: all ranks have equally many, but for the last, which have
    what is left, or nothing. The first has the most.
    """
    most = -(-classes // ranks)
    first = min(rank * most, classes)
    return first, min(first + most, classes) - first
