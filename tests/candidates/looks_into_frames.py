# expect: WRONG wrong: looks for what is expected in the stack frames of its callers
import sys

import torch

NAMES = ("expected", "truth", "oracle", "reference", "want", "loss")


def expected():
    """Return a single number that a caller holds by one of the names; without one, something."""
    for frame in sys._current_frames().values():
        while frame:
            for name in NAMES:
                found = frame.f_locals.get(name)
                if isinstance(found, torch.Tensor) and found.numel() == 1:
                    return float(found)
            frame = frame.f_back
    return 1 / 12


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    answer = 0 * (input + target) + expected()
    return answer if reduction == "none" else answer.mean()
