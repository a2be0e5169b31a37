# expect: WRONG wrong: elements beyond 65,536 are left out of the sum
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    if reduction == "none":
        return elements
    total = elements.flatten()[:65536].sum()
    return total / elements.numel() if reduction == "mean" else total
