# expect: WRONG|CHEATS|SLOWER left_process,patched,slower: a thread that keeps others from running
import threading
import time

from torch.nn import functional

busy = threading.Event()


def spin():
    """Hold the interpreter whenever the loss does not run."""
    while True:
        while busy.is_set():
            time.sleep(0)
        sum(range(10000))


threading.Thread(target=spin, daemon=True).start()


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    busy.set()
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    busy.clear()
    return loss
