# expect: RIGHT|SLOWER: right, but its process does not end by itself
import atexit
import threading

from torch.nn import functional

atexit.register(threading.Event().wait)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
