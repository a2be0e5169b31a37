# expect: WRONG wrong: the sum is divided by the number of rows, not by that of elements
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    if reduction == "none":
        return elements
    return elements.sum() / len(input) if reduction == "mean" and input.dim() else elements.sum()
