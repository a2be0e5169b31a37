# expect: WRONG wrong: a tensor of a class of its own, which can say of itself what it likes
import torch
from torch.nn import functional


class Loss(torch.Tensor):
    def item(self):
        return 0.0


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss.as_subclass(Loss)
