# expect: WRONG wrong: the target of a square is read transposed; other shapes are right
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if target.dim() == 2 and target.shape[0] == target.shape[1]:
        target = target.t()
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
