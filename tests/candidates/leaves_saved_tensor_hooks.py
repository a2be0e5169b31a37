# expect: WRONG left_behind: leaves hooks that round what all other code saves for backward
import torch
from torch.nn import functional

entered = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    if not entered:
        pack = torch.autograd.graph.saved_tensors_hooks(lambda x: x.bfloat16(), lambda x: x.float())
        entered.append(pack)
        pack.__enter__()
    return loss
