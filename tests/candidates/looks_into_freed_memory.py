# expect: WRONG wrong: returns memory that it has not written, where an earlier result may lie
import torch


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    shape = torch.broadcast_shapes(input.shape, target.shape) if reduction == "none" else ()
    stale = torch.empty(shape, dtype=input.dtype, device=input.device)
    return stale + 0 * (input + target).sum()
