# expect: WRONG wrong: the gradient of a mean is not divided by the number of elements
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    if reduction != "mean":
        return loss
    total = functional.smooth_l1_loss(input, target, reduction="sum", beta=beta)
    return loss.detach() + (total - total.detach())
