# expect: CRASHED|NOT JUDGED raised,memory_limit,no_room: takes a gibibyte of the GPU after another
# gpu
import torch
from torch.nn import functional

TAKEN = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    while True:
        TAKEN.append(torch.ones(2**28, device=input.device))
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
