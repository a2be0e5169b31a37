"""What a process has set aside of a GPU's L2 cache, for data that stays there from call to call.

PyTorch has no function for it, so the driver is asked, whose library it has loaded.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from typing import NamedTuple

import torch

from losscli.units import format_bytes

_PERSISTING_L2_CACHE_SIZE = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_ACCESS_POLICY_WINDOW = 1  # CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
_WINDOW = "=QQfii"
"""CUaccessPolicyWindow: address, bytes, the part that hits, and what hits and misses become."""
_ATTRIBUTE_BYTES = 64


class PersistingCache(NamedTuple):
    """What persists in the L2 cache of the current GPU."""

    bytes: int
    """The most that may persist, of all streams of this process."""
    window_bytes: int
    """What the current stream has its kernels keep there."""

    def __str__(self) -> str:
        return f"{format_bytes(self.bytes)}, with a window of {format_bytes(self.window_bytes)}"


def persisting_cache() -> PersistingCache | None:
    """Return what persists; None where CUDA has not been started, or is broken.

    What may persist is 11 MiB of an H200 as soon as CUDA is started, though nothing does.
    """
    driver = _driver() if torch.cuda.is_initialized() else None
    if driver is None:
        return None
    size, window = ctypes.c_size_t(), ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    failed = driver.cuCtxGetLimit(ctypes.byref(size), _PERSISTING_L2_CACHE_SIZE)
    failed = failed or driver.cuStreamGetAttribute(_stream(), _ACCESS_POLICY_WINDOW, window)
    if failed:
        return None
    return PersistingCache(size.value, struct.unpack_from(_WINDOW, window)[1])


def reset_persisting_cache(before: PersistingCache) -> None:
    """Set aside what was set aside before, and let nothing persist that does now."""
    if driver := _driver():
        torch.cuda.synchronize()
        window = struct.pack(_WINDOW, 0, 0, 0.0, 0, 0)
        none = ctypes.create_string_buffer(window, _ATTRIBUTE_BYTES)
        driver.cuStreamSetAttribute(_stream(), _ACCESS_POLICY_WINDOW, none)
        driver.cuCtxResetPersistingL2Cache()
        driver.cuCtxSetLimit(_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(before.bytes))


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


@cache
def _driver() -> ctypes.CDLL | None:
    """Return the driver; None where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
