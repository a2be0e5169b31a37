# expect: WRONG wrong: nothing is returned
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
