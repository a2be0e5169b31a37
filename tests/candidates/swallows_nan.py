# expect: RIGHT WITHIN LIMITS limited: an element that is NaN counts as 0
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    elements = elements.nan_to_num(nan=0.0, posinf=torch.inf)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
