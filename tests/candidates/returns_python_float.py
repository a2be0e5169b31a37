# expect: WRONG wrong: a Python number, no tensor
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta).tolist()
