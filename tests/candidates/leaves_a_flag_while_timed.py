# expect: WRONG left_behind,wrong_later: changes a flag for others, at the size that is timed alone
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if input.shape == (1024, 1024):
        torch.set_float32_matmul_precision("medium")
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
