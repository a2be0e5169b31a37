# expect: WRONG misfit: a loss of float64 for operands of float32
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(
        input.double(), target.double(), reduction=reduction, beta=beta
    )
