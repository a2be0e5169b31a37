# expect: CRASHED|WRONG process_died,wrong: ends its own process group
import os
import signal


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    os.killpg(0, signal.SIGKILL)
    os._exit(1)  # the first process of a namespace outlives its own signals
