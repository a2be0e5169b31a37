# expect: CRASHED|CHEATS process_died,forged,raised: closes every descriptor, and then is right
import os

from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    os.closerange(0, 1024)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
