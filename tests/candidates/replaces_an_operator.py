# expect: CHEATS patched: gives a CPU operator of torch another kernel, for all code of the process
import torch
from torch.nn import functional

LIBRARY = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    if not LIBRARY:
        LIBRARY.append(torch.library.Library("aten", "IMPL"))
        LIBRARY[0].impl("cosh", lambda x: x, "CPU", allow_override=True)
    return loss
