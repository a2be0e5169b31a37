"""Smooth L1 whose elements are PyTorch's, and whose sum is another's."""

import torch
from torch.nn import functional


def loss_by(total_of):
    """Return a loss whose sum is that of ``total_of``, of contiguous elements of float32."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, elements):
            ctx.shape, ctx.dtype = elements.shape, elements.dtype
            return total_of(elements.float().contiguous())

        @staticmethod
        def backward(ctx, incoming):
            return incoming.to(ctx.dtype).expand(ctx.shape)

    def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
        input, target = torch.broadcast_tensors(input, target)
        dtype = torch.promote_types(input.dtype, target.dtype)
        elements = functional.smooth_l1_loss(
            input.to(dtype), target.to(dtype), reduction="none", beta=beta
        )
        if reduction == "none" or dtype == torch.float64:
            return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
        total = Sum.apply(elements)
        return (total / elements.numel() if reduction == "mean" else total).to(dtype)

    return smooth_l1_loss
