# expect: WRONG wrong,overwrote: the backward pass divides the caller's incoming gradient in place
import torch
from torch.nn import functional


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        difference = input - target
        ctx.reduction = reduction
        ctx.save_for_backward(
            (difference / beta).clamp(-1, 1) if beta else difference.sign(),
        )
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        if ctx.reduction == "mean":
            incoming.div_(slope.numel())
        gradient = incoming * slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction, beta)
