# expect: CHEATS clock_disagrees,slows_others,impossible: slows Python's clock in its C functions
import ctypes
import time

from torch.nn import functional

began = time.perf_counter_ns()
now = time.clock_gettime_ns


@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
def slow_clock(module, nothing):
    return began + (now(time.CLOCK_MONOTONIC) - began) // 10


# The function stays the same object: its PyMethodDef names another function.
definition = ctypes.c_void_p.from_address(id(time.perf_counter_ns) + 16).value
ctypes.c_void_p.from_address(definition + 8).value = ctypes.cast(slow_clock, ctypes.c_void_p).value


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
