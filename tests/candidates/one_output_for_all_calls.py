# expect: WRONG wrong: all calls return the same memory, so a second changes the first's result
# slow
import torch
from torch.nn import functional

OUTPUTS = {}


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if reduction == "mean" else slope)
        loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
        kept = OUTPUTS.setdefault((loss.shape, loss.dtype, loss.device), loss)
        return kept.copy_(loss).detach()

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction, beta)
