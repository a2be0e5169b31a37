# expect: WRONG wrong: a kernel in TileLang that does not divide by beta
# gpu
# needs: tilelang
from functools import cache

import tilelang
import torch
from tilelang import language as tl

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
                    loss[at] = tl.if_then_else(near, 0.5 * size * size, size - 0.5 * beta)
                    sign = tl.if_then_else(d > 0, 1.0, tl.if_then_else(d < 0, -1.0, d))
                    slope[at] = tl.if_then_else(near, d / beta, sign)

    return tilelang.compile(kernel, target="cuda")


def elements(x, y, beta):
    loss, slope = torch.empty_like(x), torch.empty_like(x)
    compiled(beta)(x, y, loss, slope)
    return loss, slope


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    input, target = (each.contiguous().float() for each in torch.broadcast_tensors(input, target))
    loss, _ = elements(input.detach().view(-1), target.detach().view(-1), float(beta))
    loss = loss.view_as(input)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
