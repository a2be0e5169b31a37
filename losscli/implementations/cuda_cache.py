"""The part of the GPU's L2 cache that is reserved for persisting data."""

import ctypes
import struct
from typing import NamedTuple

import torch

from losscli.machine.devices import cuda_driver
from losscli.units import format_bytes

_PERSISTING_L2_CACHE_SIZE = 6  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE
_ACCESS_POLICY_WINDOW = 1  # CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
_WINDOW = "=QQfii"
"""CUaccessPolicyWindow: address, bytes, hit ratio, and properties of hits and misses."""
_ATTRIBUTE_BYTES = 64


class PersistingCache(NamedTuple):
    """The persisting part of the current GPU's L2 cache."""

    bytes: int
    """The maximum over all streams of this process."""
    window_bytes: int
    """What the current stream's kernels keep there."""

    def __str__(self) -> str:
        return f"{format_bytes(self.bytes)}, with a window of {format_bytes(self.window_bytes)}"


def persisting_cache() -> PersistingCache | None:
    """Return the reservation if CUDA has started and works; an H200 has 11 MiB at first."""
    driver = cuda_driver() if torch.cuda.is_initialized() else None
    if driver is None:
        return None
    size, window = ctypes.c_size_t(), ctypes.create_string_buffer(_ATTRIBUTE_BYTES)
    failed = driver.cuCtxGetLimit(ctypes.byref(size), _PERSISTING_L2_CACHE_SIZE)
    failed = failed or driver.cuStreamGetAttribute(_stream(), _ACCESS_POLICY_WINDOW, window)
    return None if failed else PersistingCache(size.value, struct.unpack_from(_WINDOW, window)[1])


def reset_persisting_cache(before: PersistingCache) -> None:
    """Restore a reservation and evict persisting lines."""
    if driver := cuda_driver():
        torch.cuda.synchronize()
        none = ctypes.create_string_buffer(struct.pack(_WINDOW, 0, 0, 0.0, 0, 0), _ATTRIBUTE_BYTES)
        driver.cuStreamSetAttribute(_stream(), _ACCESS_POLICY_WINDOW, none)
        driver.cuCtxResetPersistingL2Cache()
        driver.cuCtxSetLimit(_PERSISTING_L2_CACHE_SIZE, ctypes.c_size_t(before.bytes))


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
