# expect: WRONG wrong: a method of its own answers for a tensor whose memory holds zeros
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    right = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    loss = right * 0
    loss.detach = right.detach
    return loss
