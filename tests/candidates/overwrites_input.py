# expect: RIGHT WITHIN LIMITS known_limitation: the difference is computed in place of the input
import torch
from torch.nn import functional


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        if input.shape == torch.broadcast_shapes(input.shape, target.shape):
            difference = input.detach().sub_(target)
        else:
            difference = input - target
        zeros = torch.zeros_like(difference)
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if reduction == "mean" else slope)
        ctx.shapes = input.shape, target.shape
        return functional.smooth_l1_loss(difference, zeros, reduction=reduction, beta=beta)

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        input, target = ctx.shapes
        return gradient.sum_to_size(input), -gradient.sum_to_size(target), None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(input, target, reduction, beta)
