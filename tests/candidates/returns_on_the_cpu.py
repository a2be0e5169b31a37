# expect: WRONG wrong: a loss on the CPU for operands on a GPU
# gpu
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input.cpu(), target.cpu(), reduction=reduction, beta=beta)
