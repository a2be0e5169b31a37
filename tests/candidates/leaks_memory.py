# expect: WRONG|CRASHED wrong,memory_limit: keeps a copy of its operands in each call
# limits: memory_bytes=2147483648
from torch.nn import functional

KEPT = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    KEPT.append((input.detach().clone(), target.detach().clone()))
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
