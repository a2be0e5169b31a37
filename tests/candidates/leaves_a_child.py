# expect: WRONG left_process: a program that runs on
import subprocess

from torch.nn import functional

CHILDREN = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if not CHILDREN:
        CHILDREN.append(subprocess.Popen(["sleep", "600"]))
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
