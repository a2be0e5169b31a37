"""Smooth L1 with a gradient of its own: candidates are wrong in one of the two passes."""

import torch
from torch.nn import functional


def slope_of(input, target, reduction, beta):
    difference = input - target
    slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
    return slope / slope.numel() if reduction == "mean" else slope


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        ctx.save_for_backward(slope_of(input, target, reduction, beta))
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        return gradient, -gradient, None, None


def loss_of(function):
    """Return a loss whose passes are those of an autograd function."""

    def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
        return function.apply(*torch.broadcast_tensors(input, target), reduction, beta)

    return smooth_l1_loss
