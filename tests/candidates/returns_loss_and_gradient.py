# expect: WRONG wrong: a pair of the loss and its gradient, no tensor
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss, torch.zeros_like(input)
