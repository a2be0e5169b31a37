# expect: CRASHED|DOES NOT BUILD process_died,import_failed: reads address 0 while it is imported
import ctypes

ctypes.string_at(0)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    raise AssertionError("never reached")
