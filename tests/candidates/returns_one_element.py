# expect: WRONG misfit: a loss of shape (1,), not ()
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss if reduction == "none" else loss.reshape(1)
