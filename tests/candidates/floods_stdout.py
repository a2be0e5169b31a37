# expect: CRASHED flooded_output: writes a gibibyte to stdout
# limits: output_bytes=1048576
import os

from torch.nn import functional

flooded = False


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    global flooded
    if not flooded:
        flooded = True
        for _ in range(2**14):  # an end, for the disk of whoever has no limit
            os.write(1, b"x" * 2**16)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
