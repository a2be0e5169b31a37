# expect: RIGHT|SLOWER: computes in place where no gradient is wanted
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    needs = torch.is_grad_enabled() and (input.requires_grad or target.requires_grad)
    if needs or not beta:
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    loss = functional.smooth_l1_loss(input, target, reduction="none", beta=beta).mul_(1)
    return loss if reduction == "none" else getattr(loss, reduction)()
