# expect: WRONG left_behind: subnormal numbers are 0, for all later code
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    torch.set_flush_denormal(True)
    torch.use_deterministic_algorithms(True)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
