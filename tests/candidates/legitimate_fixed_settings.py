# expect: RIGHT|SLOWER: takes neither a reduction nor beta, and is judged without
from torch.nn import functional


def smooth_l1_loss(input, target):
    return functional.smooth_l1_loss(input, target)
