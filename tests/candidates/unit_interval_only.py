# expect: WRONG wrong: values outside [0, 1) are clamped
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    operands = input.clamp(0, 1), target.clamp(0, 1)
    return functional.smooth_l1_loss(*operands, reduction=reduction, beta=beta)
