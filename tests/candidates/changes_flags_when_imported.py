# expect: RIGHT WITHIN LIMITS limited: the import sets the default dtype, and four threads more
import torch
from torch.nn import functional

torch.set_default_dtype(torch.float64)
torch.set_num_threads(torch.get_num_threads() + 4)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
