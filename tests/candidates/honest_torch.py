# expect: RIGHT|NO WORSE THAN TORCH: torch's own op, in every dtype
# dtypes: float32, float64, float16, bfloat16
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    input, target = torch.broadcast_tensors(input, target)
    dtype = torch.promote_types(input.dtype, target.dtype)
    return functional.smooth_l1_loss(
        input.to(dtype), target.to(dtype), reduction=reduction, beta=beta
    )
