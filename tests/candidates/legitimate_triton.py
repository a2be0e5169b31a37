# expect: RIGHT|SLOWER: a fused kernel in Triton, forward and backward
# gpu
import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

BLOCK = 1024


@triton.jit
def forward_kernel(x, y, out, count, beta, reduce_all: tl.constexpr, block_size: tl.constexpr):
    block = tl.program_id(0).to(tl.int64)
    at = block * block_size + tl.arange(0, block_size)
    here = at < count
    d = tl.abs(tl.load(x + at, here, 0).to(tl.float32) - tl.load(y + at, here, 0).to(tl.float32))
    loss = tl.where(d < beta, 0.5 * d * (d / beta), d - 0.5 * beta)
    if reduce_all:
        tl.store(out + block, tl.sum(tl.where(here, loss, 0).to(tl.float64)))
    else:
        tl.store(out + at, loss, here)


@triton.jit
def backward_kernel(
    x, y, incoming, gradient, count, share, beta, reduce_all: tl.constexpr, block_size: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * block_size + tl.arange(0, block_size)
    here = at < count
    d = tl.load(x + at, here, 0).to(tl.float32) - tl.load(y + at, here, 0).to(tl.float32)
    sign = tl.where(d > 0, 1.0, tl.where(d < 0, -1.0, d))
    slope = tl.where(tl.abs(d) < beta, d / beta, sign)
    g = tl.load(incoming) if reduce_all else tl.load(incoming + at, here, 0)
    tl.store(gradient + at, g.to(tl.float32) * share * slope, here)


def loss_of(forward, backward, least, **fixed):
    """Return the loss of two kernels, whose blocks have so many elements at least.

    ``fixed``: what the kernels are given beside their operands, unless they tune it.
    """

    def grid(count):
        return lambda meta: (triton.cdiv(count, meta["block_size"]),)

    class SmoothL1(torch.autograd.Function):
        """The loss of two contiguous tensors of one shape and one dtype of at most 32 bits."""

        @staticmethod
        def forward(ctx, input, target, reduction, beta):
            ctx.save_for_backward(input, target)
            ctx.shape, ctx.reduction, ctx.beta = input.shape, reduction, beta
            count, reduce = input.numel(), reduction != "none"
            if reduce:
                blocks = triton.cdiv(count, least)
                out = torch.zeros(blocks, dtype=torch.float64, device=input.device)
            else:
                out = torch.empty_like(input)
            if count:
                with torch.cuda.device(input.device):
                    forward[grid(count)](input, target, out, count, beta, reduce, **fixed)
            if not reduce:
                return out
            total = out.sum()
            return (total / count if reduction == "mean" else total).to(input.dtype)

        @staticmethod
        @once_differentiable
        def backward(ctx, incoming):
            # Whoever sets x.data between the passes may have changed strides and shape.
            input, target = (each.contiguous() for each in ctx.saved_tensors)
            if not input.shape == target.shape == ctx.shape:
                raise RuntimeError(f"expected operands of shape {ctx.shape} as in the forward pass")
            incoming, gradient = incoming.contiguous(), torch.empty_like(input)
            count, reduce = input.numel(), ctx.reduction != "none"
            share = 1 / max(count, 1) if ctx.reduction == "mean" else 1.0
            if count:
                with torch.cuda.device(input.device):
                    backward[grid(count)](
                        *(input, target, incoming, gradient, count, share, ctx.beta, reduce),
                        **fixed,
                    )
            return gradient, -gradient, None, None

    def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
        input, target = torch.broadcast_tensors(input, target)
        dtype = torch.promote_types(input.dtype, target.dtype)
        if dtype == torch.float64:  # Triton's scalar arguments are float32
            return torch.nn.functional.smooth_l1_loss(
                input.to(dtype), target.to(dtype), reduction=reduction, beta=beta
            )
        operands = (each.to(dtype).contiguous() for each in (input, target))
        return SmoothL1.apply(*operands, reduction, float(beta))

    return smooth_l1_loss


smooth_l1_loss = loss_of(forward_kernel, backward_kernel, BLOCK, block_size=BLOCK)
