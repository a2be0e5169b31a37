# expect: RIGHT|SLOWER: times two ways in the first call of a shape, and keeps which was faster
import time

from torch.nn import functional

CHOSEN = {}


def fused(input, target, reduction, beta):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def reduced_apart(input, target, reduction, beta):
    loss = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    return loss if reduction == "none" else getattr(loss, reduction)()


def seconds(way, *arguments):
    start = time.perf_counter()
    way(*arguments)
    return time.perf_counter() - start


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    key = input.shape, target.shape, input.dtype, reduction
    if key not in CHOSEN:
        ways = fused, reduced_apart
        CHOSEN[key] = min(ways, key=lambda way: seconds(way, input, target, reduction, beta))
    return CHOSEN[key](input, target, reduction, beta)
