# expect: CHEATS clock_disagrees: CUDA events say four fifths, in their table of C functions
# gpu
import ctypes

import torch
from torch.nn import functional

FUNCTION = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)
# The method stays the same object: its PyMethodDef names another function.
method = torch._C._CudaEventBase.__dict__["elapsed_time"]
definition = ctypes.c_void_p.from_address(id(method) + 40).value
place = ctypes.c_void_p.from_address(definition + 8)
real = FUNCTION(place.value)


@FUNCTION
def elapsed_time(start, end):
    return 0.8 * real(start, end)


place.value = ctypes.cast(elapsed_time, ctypes.c_void_p).value


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if input.is_cuda:
        torch.cuda._sleep(1_000_000)  # half a millisecond: it is the GPU that takes the time
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
