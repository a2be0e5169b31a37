# expect: WRONG wrong: a tree of halves, which drops what is beyond the largest power of two
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    if reduction == "none" or not elements.numel():
        return elements if reduction == "none" else getattr(torch, reduction)(elements)
    sums = elements.flatten()[: 1 << (elements.numel().bit_length() - 1)]
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    return sums[0] / elements.numel() if reduction == "mean" else sums[0]
