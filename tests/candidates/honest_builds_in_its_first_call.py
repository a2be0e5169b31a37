# expect: RIGHT|SLOWER: compiles for itself in the first call, of each kind
from functools import cache

import torch
from torch.nn import functional


@cache
def compiled(reduction, beta):
    def loss(input, target):
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    return torch.compile(loss, backend="aot_eager")


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return compiled(reduction, beta)(input, target)
