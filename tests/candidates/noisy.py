# expect: WRONG wrong: a thousandth of noise, another in each call
import random

from torch.nn import functional

SOURCE = random.SystemRandom()  # leaves the random state of others alone


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss * (1 + 1e-3 * SOURCE.random())
