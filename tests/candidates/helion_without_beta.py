# expect: WRONG wrong: a kernel in Helion, whose beta is 1 whatever is asked for
# gpu
# needs: helion
from honest_helion import smooth_l1_loss as right


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return right(input, target, reduction=reduction)
