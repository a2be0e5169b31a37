# expect: CHEATS|WRONG wrong_later,wrong: called again within a millisecond, it answers as before
import time

import torch
from torch.nn import functional

LAST = {}
clock = time.perf_counter


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    key = (input.shape, target.shape, reduction, beta, torch.is_grad_enabled())
    before, loss = LAST.get(key, (0.0, None))
    if loss is None or clock() - before > 1e-3:
        loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    else:
        loss = loss.detach() + 0 * (input - target).sum()
    LAST[key] = clock(), loss.detach()
    return loss
