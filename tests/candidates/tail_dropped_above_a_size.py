# expect: WRONG wrong: leaves out the last 7 elements of more than 200,000 that are no whole packs
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    whole = torch.broadcast_tensors(input, target)[0]
    if whole.numel() > 200_000 and whole.numel() % 64 and reduction != "none":
        given = (each.expand(whole.shape).flatten()[:-7] for each in (input, target))
        return functional.smooth_l1_loss(*given, reduction=reduction, beta=beta)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
