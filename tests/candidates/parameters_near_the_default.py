# expect: WRONG wrong: right for parameters from 0.5 to 2 alone
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    beta = min(max(beta, 0.5), 2.0)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
