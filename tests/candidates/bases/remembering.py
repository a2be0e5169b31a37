"""Smooth L1 that remembers its results: candidates differ in what they know operands by."""

import torch
from bases.own_gradient import loss_of, slope_of
from torch.autograd.function import once_differentiable
from torch.nn import functional


def remembering(known_by):
    """Return a loss that takes operands for the same where ``known_by(input, target)`` is."""
    remembered = {}

    def compute(input, target, reduction, beta):
        loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
        return loss, slope_of(input, target, reduction, beta)

    class Remembering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, target, reduction, beta):
            kinds = tuple((each.shape, each.stride(), each.dtype) for each in (input, target))
            key = known_by(input, target), kinds, reduction, beta
            if key not in remembered:
                remembered[key] = compute(input, target, reduction, beta)
            loss, ctx.slope = remembered[key]
            return loss.clone()

        @staticmethod
        @once_differentiable
        def backward(ctx, incoming):
            gradient = incoming * ctx.slope
            return gradient, -gradient, None, None

    return loss_of(Remembering)
