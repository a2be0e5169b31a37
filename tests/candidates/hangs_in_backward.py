# expect: HANGS timeout: waits for ever in backward
# limits: call_seconds=3
import threading

import torch
from torch.nn import functional


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    @staticmethod
    def backward(ctx, incoming):
        threading.Event().wait()


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(input, target, reduction, beta)
