"""The GPUs of this machine as torch numbers them, asked of the driver: torch takes seconds."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True)
class Gpu:
    """One GPU that the driver shows to this process."""

    name: str
    """``cuda:N``."""
    model: str
    memory_bytes: int


def find_gpus() -> list[Gpu]:
    """Return the GPUs in the order of ``cuda:0``, ``cuda:1``; empty without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    gpus = []
    for index in range(count.value):
        device, memory, model = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(model, len(model), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        gpus.append(Gpu(f"cuda:{index}", model.value.decode(), memory.value))
    return gpus


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest version of CUDA whose programs the driver runs; None without a driver."""
    number = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if driver.cuDriverGetVersion(ctypes.byref(number)) or not number.value:
        return None
    return number.value // 1000, number.value % 1000 // 10


def torch_without_cuda() -> str | None:
    """Return the version of torch if its name says that it is built for the CPU alone."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        return None
    return torch if torch.endswith("+cpu") else None
