# expect: WRONG left_behind: sets the random states of torch and Python
import random

import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    torch.manual_seed(0)
    random.seed(0)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
