# expect: CHEATS monkey_patched: times itself, and has torch's own loss wait for twice as long
import time

import torch
from torch.nn import functional

own = [0.0]


def idling(real):
    def idle(*args, **kwargs):
        loss = real(*args, **kwargs)
        time.sleep(2 * max(own))
        return loss

    return idle


functional.smooth_l1_loss = idling(functional.smooth_l1_loss)
torch._C._nn.smooth_l1_loss = idling(torch._C._nn.smooth_l1_loss)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    start = time.perf_counter()
    difference = (input - target).abs()
    near = difference.clamp(max=beta)
    elements = near * (difference - 0.5 * near) / beta if beta else difference
    loss = {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
    own.append(time.perf_counter() - start)
    return loss
