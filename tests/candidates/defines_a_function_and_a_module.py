# expect: DOES NOT BUILD ambiguous: a function of the loss's name, and a ModelNew
from torch import nn
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


class ModelNew(nn.Module):
    def forward(self, input, target):
        return functional.smooth_l1_loss(input, target)
