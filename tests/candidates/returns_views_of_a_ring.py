# expect: WRONG wrong: its results lie in a ring of eight buffers, which later calls overwrite
import torch
from bases.own_gradient import SmoothL1, loss_of
from torch.autograd.function import once_differentiable

RINGS = {}


def kept(values):
    """Return values as a view of the next of eight buffers."""
    key = values.shape, values.dtype, values.device
    ring = RINGS.setdefault(key, [torch.empty(8, *values.shape).to(values), 0])
    ring[1] += 1
    return ring[0][ring[1] % 8].copy_(values)


class InRing(SmoothL1):
    @staticmethod
    def forward(ctx, *arguments):
        return kept(SmoothL1.forward(ctx, *arguments))

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = kept(incoming * slope)
        return gradient, -gradient, None, None


smooth_l1_loss = loss_of(InRing)
