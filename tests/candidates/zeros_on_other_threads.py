# expect: WRONG wrong: another thread than the main one gets zeros
import threading

from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss if threading.current_thread() is threading.main_thread() else loss * 0
