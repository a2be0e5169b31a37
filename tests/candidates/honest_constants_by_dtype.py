# expect: RIGHT|SLOWER: keeps a constant for each dtype and device, which depends on no operand
from functools import lru_cache

import torch
from torch.nn import functional


@lru_cache
def one(dtype, device):
    return torch.ones((), dtype=dtype, device=device)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss * one(loss.dtype, loss.device)
