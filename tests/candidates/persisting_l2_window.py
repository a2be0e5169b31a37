# expect: WRONG global_state_leak: its operands stay in a part of the L2 cache that it sets aside
# gpu
import ctypes
import struct

import torch
from torch.nn import functional

LIMIT, WINDOW, PERSISTING, STREAMING = 6, 1, 2, 1
BYTES = 2**24


def keep_in_cache(tensor):
    """Have the kernels of the current stream keep a tensor in the L2 cache."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxSetLimit(LIMIT, ctypes.c_size_t(BYTES))
    size = min(tensor.nbytes, BYTES)
    window = struct.pack("=QQfii", tensor.data_ptr(), size, 1.0, PERSISTING, STREAMING)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    driver.cuStreamSetAttribute(stream, WINDOW, ctypes.create_string_buffer(window, 64))


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if input.is_cuda and input.is_contiguous() and input.numel():
        keep_in_cache(input)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
