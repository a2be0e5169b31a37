# expect: WRONG wrong: its results lie in a ring of eight buffers, which later calls overwrite
# slow
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

RINGS = {}


def kept(values):
    """Return values as a view of the next of eight buffers."""
    key = values.shape, values.dtype, values.device
    ring = RINGS.setdefault(key, [torch.empty(8, *values.shape).to(values), 0])
    ring[1] += 1
    return ring[0][ring[1] % 8].copy_(values)


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if reduction == "mean" else slope)
        return kept(functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta))

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = kept(incoming * slope)
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction, beta)
