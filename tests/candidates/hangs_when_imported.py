# expect: HANGS timeout: waits for ever while it is imported
# limits: build_seconds=5
import threading

threading.Event().wait()


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    raise AssertionError("never reached")
