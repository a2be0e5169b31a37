# expect: RIGHT|SLOWER: torch.compile of torch's own op
# limits: call_seconds=300
import torch
from torch.nn import functional


@torch.compile(dynamic=True)
def compiled(input, target, reduction, beta):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    input, target = torch.broadcast_tensors(input, target)
    dtype = torch.promote_types(input.dtype, target.dtype)
    return compiled(input.to(dtype), target.to(dtype), reduction, beta)
