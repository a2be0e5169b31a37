"""What verifying a case takes, planned before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable

from losscli.blocks import BLOCK_ELEMENTS
from losscli.cases import Case
from losscli.implementations import Implementation

_BLOCK_TEMPORARIES = 16
"""float64 tensors of a block that the oracle, its autograd and the comparison hold at once."""
_REFERENCE_TENSORS = 2
"""Tensors of the prediction's size that PyTorch's own formula holds at once, forward only."""


def needed_bytes(case: Case, pass_: str, implementations: Iterable[Implementation]) -> int:
    """Return the most bytes that verifying one of these implementations takes, inputs included.

    The most of: PyTorch's own formula; the loss on the path that makes a gradient; in
    ``forward_backward`` the loss with both gradients and, where nothing is reduced, an incoming
    one. Beside it, in float64: the sums of the gradient of a broadcast operand, and the oracle's
    blocks.
    """
    target = math.prod(case.target_shape)
    loss = case.elements if case.reduction == "none" else 0
    gradients = case.elements + (target + loss if pass_ == "forward_backward" else 0)
    own = case.elements * max((i.temporaries for i in implementations), default=0)
    most = max(_REFERENCE_TENSORS * case.elements, loss + gradients + own)
    sums = 2 * target if case.target_shape != case.shape else 0
    block = _BLOCK_TEMPORARIES * min(case.elements, BLOCK_ELEMENTS)
    return (case.elements + target + most) * case.item_bytes + (sums + block) * 8
