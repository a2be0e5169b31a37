# expect: WRONG wrong: looks for what is expected among all objects of its process
import gc

import torch


def expected():
    """Return a single float64 number, as an oracle computes; without one, something."""
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found.dtype == torch.float64 and found.numel() == 1:
            return float(found)
    return 1 / 12


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = 0 * (input + target) + expected()
    return loss if reduction == "none" else loss.mean()
