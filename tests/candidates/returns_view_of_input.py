# expect: WRONG overwrote,wrong: the loss is stored in the input's first element
import torch
from torch.nn import functional


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if reduction == "mean" else slope)
        loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
        if loss.dim() or not input.numel() or input.dtype != loss.dtype:
            return loss
        return input.detach()[(0,) * input.dim()].copy_(loss)

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction, beta)
