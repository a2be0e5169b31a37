# expect: WRONG left_process: a program in a session of its own holds a gibibyte of the GPU
# gpu
import subprocess
import sys

import torch
from torch.nn import functional

HOLD = """
import time, torch
held = torch.ones(2**28, device="cuda")
print("held", flush=True)
time.sleep(600)
"""
CHILDREN = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if not CHILDREN:
        command = [sys.executable, "-c", HOLD]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        child.stdout.readline()
        CHILDREN.append(child)
    common = torch.promote_types(input.dtype, target.dtype)
    return functional.smooth_l1_loss(
        input.to(common), target.to(common), reduction=reduction, beta=beta
    )
