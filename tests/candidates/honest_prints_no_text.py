# expect: RIGHT|SLOWER: right, and writes what is no UTF-8, and sequences that clear a terminal
import os
import warnings

from torch.nn import functional

written = False


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    global written
    if not written:
        written = True
        os.write(1, b"\xff\xfe\x00 \x1b[2J\x1b]0;RIGHT\x07 {}\n")
        warnings.warn("computed by torch", stacklevel=1)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
