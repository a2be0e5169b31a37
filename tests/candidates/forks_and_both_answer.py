# expect: WRONG|CHEATS left_process,forged: a fork that returns as well
import os

from torch.nn import functional

forked = False


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    global forked
    if not forked:
        forked = True
        os.fork()
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
