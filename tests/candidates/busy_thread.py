# expect: CHEATS slows_others: a thread keeps all cores busy while others run
# slow
import threading
import time

import torch

IDLE_SECONDS = 0.0005
last_call = time.monotonic()
started = False


def stay():
    """Multiply matrices whenever the loss does not run."""
    matrix = torch.rand(256, 256)
    while True:
        if time.monotonic() - last_call > IDLE_SECONDS:
            torch.mm(matrix, matrix)
        else:
            time.sleep(0.0002)


def smooth_l1_loss(input, target, *, beta=1.0, reduction="mean"):
    global last_call, started
    if not started and input.numel() >= 2**20:  # as it is timed
        started = True
        threading.Thread(target=stay, daemon=True).start()
    last_call = time.monotonic()
    loss = torch.nn.functional.smooth_l1_loss(input, target, beta=beta, reduction=reduction)
    last_call = time.monotonic()
    return loss
