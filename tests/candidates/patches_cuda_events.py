# expect: CHEATS patched,clock_disagrees: CUDA events that say a microsecond, and no wait for a GPU
import torch
from torch.nn import functional

torch.cuda.Event.elapsed_time = lambda self, end: 1e-3
torch.cuda.synchronize = lambda device=None: None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
