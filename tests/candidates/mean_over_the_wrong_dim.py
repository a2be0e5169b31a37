# expect: WRONG wrong: a mean over the rows alone
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    if reduction == "mean" and elements.dim():
        return elements.mean(dim=0)
    return elements.sum() if reduction == "sum" else elements
