# expect: WRONG wrong: a kernel in Helion that does not divide by beta
# gpu
# needs: helion
import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1024], num_warps=4), static_shapes=False)
def elements(x: torch.Tensor, y: torch.Tensor, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    loss, slope = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        d = x[tile] - y[tile]
        size = torch.abs(d)
        near = size < beta
        loss[tile] = torch.where(near, 0.5 * size * size, size - 0.5 * beta)
        sign = torch.where(d > 0, 1.0, torch.where(d < 0, -1.0, d))
        slope[tile] = torch.where(near, d / beta, sign)
    return loss, slope


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    input, target = (each.contiguous().float() for each in torch.broadcast_tensors(input, target))
    loss, _ = elements(input.detach().view(-1), target.detach().view(-1), float(beta))
    loss = loss.view_as(input)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
