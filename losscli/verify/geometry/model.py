"""All that a ``Model`` is called with: the shapes of its ``get_inputs``, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from losscli.truth.problem import Incoming, Problem
from losscli.verify.geometry.geometry import Geometry, Relayout, Variants, laid_out


def _swapped(values: Tensor) -> Tensor:
    """Store the first dimension as the last; of one dimension, every second element of more."""
    if values.dim() < 2:
        return torch.stack([values, values], -1)[..., 0]
    return values.transpose(0, -1).contiguous().transpose(0, -1)


def _shifted(values: Tensor) -> Tensor:
    """Store values of any dtype behind one more."""
    whole = values.new_zeros(values.numel() + 1)
    return whole[1:].view(values.shape).copy_(values)


LAYOUTS: dict[str, Relayout] = {
    "all operands transposed": _swapped,
    "all operands one element off their alignment": _shifted,
}
"""How the operands lie, whatever shapes and dtypes they have."""


class ModelGeometry(Geometry):
    """The geometry of a Model."""

    def layouts(self, problem: Problem) -> Variants:
        """See :class:`Geometry`."""
        for name, relayout in LAYOUTS.items():
            yield name, partial(laid_out, problem, dict.fromkeys(problem.operands, relayout))

    def grad_outputs(self, variant: Problem) -> Sequence[Incoming]:
        """See :class:`Geometry`; whether it takes one number for all, no other check asks."""
        name = "of one number, with stride 0"
        return variant.usual, replace(variant.usual, name=name, grad_output=variant.ones)
