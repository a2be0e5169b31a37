# expect: WRONG left_behind: one thread more in each call
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
