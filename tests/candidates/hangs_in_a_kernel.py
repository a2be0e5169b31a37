# expect: HANGS timeout: a kernel that spins for longer than anybody waits
# gpu
# limits: call_seconds=10
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    torch.cuda._sleep(2**60)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
