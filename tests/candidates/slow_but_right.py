# expect: SLOWER slower: right, a tenth of a second late
import time

from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    time.sleep(0.1)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
