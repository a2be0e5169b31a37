# expect: WRONG wrong: computes in bfloat16 above 200,000 elements
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    large = input.numel() > 200_000
    given = (input.bfloat16().to(input.dtype), target) if large else (input, target)
    return functional.smooth_l1_loss(*given, reduction=reduction, beta=beta)
