# expect: WRONG wrong: the path for inference forgets beta
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if not torch.is_grad_enabled():
        beta = 0.5
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
