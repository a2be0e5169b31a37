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

CUTS: Mapping[str, Mapping[str, int]] = {
    "cross_entropy": {"input": -1},
    "token_log_probs": {"input": -1},
    "kl_divergence": {"input": -1, "target": -1},
    "linear_cross_entropy": {"linear_weight": 0},
    "linear_token_log_probs": {"linear_weight": 0},
}
"""The losses that can be split: the operands that are cut, each with the dimension of the classes.
Every rank has the whole of all others."""


def share(classes: int, ranks: int, rank: int = 0) -> tuple[int, int]:
    """Return the first class of a rank, and how many it has.

    As ``DTensor`` splits a dimension: all ranks have equally many, but for the last, which have
    what is left, or nothing. The first has the most.
    """
    most = -(-classes // ranks)
    first = min(rank * most, classes)
    return first, min(first + most, classes) - first
