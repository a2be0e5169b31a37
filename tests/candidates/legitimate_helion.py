# expect: RIGHT|SLOWER: a kernel in Helion, forward and backward
# gpu
# needs: helion
import helion
import helion.language as hl
import torch
from bases.elements import loss_of_elements


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


smooth_l1_loss = loss_of_elements(elements)
