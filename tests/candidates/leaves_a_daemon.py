# expect: WRONG left_process: a process in a session of its own, whose parent has gone
import os
import time

from torch.nn import functional

left = False


def leave():
    """Fork twice, as daemons do."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if not os.fork():
        time.sleep(600)
    os._exit(0)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    global left
    if not left:
        left = True
        leave()
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
