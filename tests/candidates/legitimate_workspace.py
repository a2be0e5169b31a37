# expect: RIGHT|SLOWER: keeps a workspace for each shape, and writes to it before it reads it
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

WORKSPACES = {}


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        ctx.save_for_backward(input, target)
        ctx.reduction, ctx.beta = reduction, beta
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        input, target = ctx.saved_tensors
        key = input.shape, input.dtype, input.device
        work = WORKSPACES.setdefault(key, torch.empty_like(input))
        torch.sub(input, target, out=work)
        work.div_(ctx.beta).clamp_(-1, 1) if ctx.beta else work.sign_()
        if ctx.reduction == "mean":
            work /= max(work.numel(), 1)
        gradient = incoming * work
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if input.dtype != target.dtype:
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction, beta)
