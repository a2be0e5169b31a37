# expect: WRONG|CHEATS wrong,wrong_later: remembers its results by sums of the operands
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

REMEMBERED = {}


def compute(input, target, reduction, beta):
    """Return the loss and its slope."""
    difference = input - target
    slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss, slope / slope.numel() if reduction == "mean" else slope


class Remembering(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        operands = tuple(float(each.double().sum()) for each in (input, target))
        kinds = tuple((each.shape, each.stride(), each.dtype) for each in (input, target))
        key = operands, kinds, reduction, beta
        if key not in REMEMBERED:
            REMEMBERED[key] = compute(input, target, reduction, beta)
        loss, ctx.slope = REMEMBERED[key]
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        gradient = incoming * ctx.slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return Remembering.apply(*torch.broadcast_tensors(input, target), reduction, beta)
