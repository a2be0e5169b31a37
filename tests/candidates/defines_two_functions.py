# expect: DOES NOT BUILD ambiguous,nothing_to_judge: two functions of other names that both fit
from torch.nn import functional


def plain(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def fused(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
