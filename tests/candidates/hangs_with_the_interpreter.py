# expect: HANGS timeout: sleeps in C without giving the interpreter to other threads
# limits: call_seconds=3
import ctypes


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    ctypes.PyDLL(None).sleep(100000)
