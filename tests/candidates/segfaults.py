# expect: CRASHED process_died: reads address 0
import ctypes


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return ctypes.string_at(0)
