# expect: RIGHT|SLOWER: has a path for contiguous operands, and torch's function for others
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional


class OfContiguous(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        if not (input.is_contiguous() and target.is_contiguous() and input.shape == target.shape):
            raise ValueError("not contiguous")
        ctx.save_for_backward(input, target)
        ctx.beta, ctx.share = beta, 1 / input.numel() if reduction == "mean" else 1
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        input, target = ctx.saved_tensors
        gradient = incoming * ctx.share * ((input - target) / ctx.beta).clamp(-1, 1)
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    try:
        if beta and input.numel() and input.dtype == target.dtype == torch.float32:
            return OfContiguous.apply(input, target, reduction, beta)
    except ValueError:
        pass
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
