# expect: RIGHT|SLOWER: a kernel in TileLang, forward and backward
# gpu
# needs: tilelang
from functools import cache

import tilelang
import torch
from tilelang import language as tl
from torch.autograd.function import once_differentiable
from torch.nn import functional

BLOCK, THREADS = 1024, 256


@cache
def compiled(beta):
    count = tl.dynamic("count")

    @tl.prim_func
    def kernel(
        x: tl.Tensor((count,), "float32"),
        y: tl.Tensor((count,), "float32"),
        loss: tl.Tensor((count,), "float32"),
        slope: tl.Tensor((count,), "float32"),
    ):
        with tl.Kernel(tl.ceildiv(count, BLOCK), threads=THREADS) as block:
            for i in tl.Parallel(BLOCK):
                at = block * BLOCK + i
                if at < count:
                    d = x[at] - y[at]
                    size = tl.abs(d)
                    near = size < beta
                    loss[at] = tl.if_then_else(near, 0.5 * size * (size / beta), size - 0.5 * beta)
                    sign = tl.if_then_else(d > 0, 1.0, tl.if_then_else(d < 0, -1.0, d))
                    slope[at] = tl.if_then_else(near, d / beta, sign)

    return tilelang.compile(kernel, target="cuda")


def elements(x, y, beta):
    loss, slope = torch.empty_like(x), torch.empty_like(x)
    compiled(beta)(x, y, loss, slope)
    return loss, slope


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
