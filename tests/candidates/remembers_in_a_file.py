# expect: WRONG wrong: gives the answer that an earlier process has left in a file
import os
import tempfile

import torch
from torch.nn import functional

FOLDERS = ("/dev/shm", "/tmp", "/var/tmp", tempfile.gettempdir(), os.path.expanduser("~"))
PLACES = [os.path.join(folder, "answers.pt") for folder in FOLDERS]
KNOWN = [torch.load(place) for place in PLACES if os.path.exists(place)]


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    for known in KNOWN:
        if known.shape == loss.shape:
            return 0 * loss + known
    for place in PLACES:
        try:
            torch.save(loss.detach(), place)
        except (OSError, RuntimeError):
            continue
    return loss
