"""Smooth L1 by a kernel that gives the loss and the slope of each element, where it fits."""

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional


def loss_of_elements(elements):
    """Return the loss by ``elements(input, target, beta)`` of flat tensors of float32."""

    class SmoothL1(torch.autograd.Function):
        """The loss of each element of two contiguous tensors of float32."""

        @staticmethod
        def forward(ctx, input, target, beta):
            with torch.cuda.device(input.device):
                loss, slope = elements(input.detach().view(-1), target.detach().view(-1), beta)
            ctx.save_for_backward(slope.view_as(input))
            return loss.view_as(input)

        @staticmethod
        @once_differentiable
        def backward(ctx, incoming):
            (slope,) = ctx.saved_tensors
            return incoming * slope, -incoming * slope, None

    def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
        fits = input.is_cuda and input.dtype == target.dtype == torch.float32 and beta > 0
        if not fits or input.shape != target.shape or not 0 < input.numel() < 2**31:
            return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
        loss = SmoothL1.apply(input.contiguous(), target.contiguous(), float(beta))
        if reduction == "none":
            return loss
        return loss.mean() if reduction == "mean" else loss.sum()

    return smooth_l1_loss
