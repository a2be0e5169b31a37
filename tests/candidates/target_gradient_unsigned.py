# expect: WRONG wrong: the target has the gradient of the input, with its sign
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    moved = target.detach() + (target.detach() - target)  # the same value, the other slope
    return functional.smooth_l1_loss(input, moved, reduction=reduction, beta=beta)
