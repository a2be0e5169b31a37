# expect: RIGHT BUT NO GRADIENT no_gradient: the loss has no history
import torch
from torch.nn import functional


@torch.no_grad()
def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
