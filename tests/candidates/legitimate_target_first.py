# expect: RIGHT|SLOWER: takes the target first, by name
from torch.nn import functional


def smooth_l1_loss(target, input, beta=1.0, reduction="mean"):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
