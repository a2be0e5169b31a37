# expect: RIGHT|SLOWER: right, and leaves files in its home and its temporary folder
import os
import tempfile

from torch.nn import functional

for folder in (tempfile.gettempdir(), os.path.expanduser("~")):
    with open(os.path.join(folder, "left"), "wb") as file:
        file.write(bytes(2**20))


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
