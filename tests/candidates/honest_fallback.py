# expect: RIGHT|SLOWER: falls back to torch's function where a faster package is missing
from torch.nn import functional

try:
    from fast_losses_that_nobody_has import smooth_l1 as fast
except ImportError:
    fast = None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if fast is not None:
        return fast(input, target, reduction, beta)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
