# expect: RIGHT|SLOWER: a kernel in TileLang, forward and backward
# gpu
# needs: tilelang
from functools import cache

import tilelang
import torch
from bases.elements import loss_of_elements
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
                    loss[at] = tl.if_then_else(near, 0.5 * size * (size / beta), size - 0.5 * beta)
                    sign = tl.if_then_else(d > 0, 1.0, tl.if_then_else(d < 0, -1.0, d))
                    slope[at] = tl.if_then_else(near, d / beta, sign)

    return tilelang.compile(kernel, target="cuda")


def elements(x, y, beta):
    loss, slope = torch.empty_like(x), torch.empty_like(x)
    compiled(beta)(x, y, loss, slope)
    return loss, slope


smooth_l1_loss = loss_of_elements(elements)
