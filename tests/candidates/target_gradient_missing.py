# expect: WRONG wrong,no_gradient: the input has a gradient, the target has none
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target.detach(), reduction=reduction, beta=beta)
