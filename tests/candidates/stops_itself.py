# expect: HANGS|WRONG timeout,wrong: stops its process, which then neither runs nor ends
# limits: call_seconds=3
import os
import signal


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:  # the first process of a namespace outlives its own signals
        signal.pause()
