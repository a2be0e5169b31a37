# expect: WRONG wrong: elements and sum are rounded to float16
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    half = elements.half()
    loss = {"none": half, "mean": half.mean(), "sum": half.sum()}[reduction]
    return loss.to(elements.dtype)
