# expect: RIGHT|SLOWER: a kernel in Helion, forward and backward
# gpu
# needs: helion
import helion
import helion.language as hl
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional


@helion.kernel(config=helion.Config(block_sizes=[1024], num_warps=4), static_shapes=False)
def elements(x: torch.Tensor, y: torch.Tensor, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    loss, slope = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        d = x[tile] - y[tile]
        size = torch.abs(d)
        near = size < beta
        loss[tile] = torch.where(near, 0.5 * size * (size / beta), size - 0.5 * beta)
        sign = torch.where(d > 0, 1.0, torch.where(d < 0, -1.0, d))
        slope[tile] = torch.where(near, d / beta, sign)
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
