# expect: CRASHED memory_limit: takes 256 MiB after another
# limits: memory_bytes=1073741824
import torch
from torch.nn import functional

TAKEN = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    while len(TAKEN) < 32:  # an end at 8 GiB, for the machine of whoever has no limit
        TAKEN.append(torch.ones(2**26))
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
