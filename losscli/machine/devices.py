"""The devices of this machine, as the driver lists them: importing torch takes seconds."""

import ctypes
import importlib
import os
import platform
import re
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from losscli.errors import NoGPUError, UsageError
from losscli.machine import kernel_files
from losscli.machine.pytorch import torch


@dataclass(frozen=True)
class Gpu:
    """A visible GPU; its name is ``cuda:N``."""

    name: str
    model: str
    memory_bytes: int
    uuid: str = ""
    """The same in all processes; empty if unknown."""


def cuda_driver() -> ctypes.CDLL | None:
    """Return CUDA's driver library."""
    with suppress(OSError):
        return ctypes.CDLL("libcuda.so.1")
    return None


def find_gpus() -> list[Gpu]:
    """Return the GPUs in order; none without a driver."""
    driver, count = cuda_driver(), ctypes.c_int()
    if not driver or driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    gpus = []
    for index in range(count.value):
        device, memory, model = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        driver.cuDeviceGet(ctypes.byref(device), index)
        driver.cuDeviceGetName(model, len(model), device)
        driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
        given = (ctypes.c_ubyte * 16)()
        failed = driver.cuDeviceGetUuid(ctypes.byref(given), device)
        uuid = "" if failed else str(UUID(bytes=bytes(given)))
        gpus.append(Gpu(f"cuda:{index}", model.value.decode(), memory.value, uuid))
    return gpus


def gpu_uuid(device: str) -> str | None:
    """Return the UUID of ``cuda:N``, or None."""
    return next((gpu.uuid or None for gpu in find_gpus() if gpu.name == device), None)


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA version that the driver runs."""
    driver, number = cuda_driver(), ctypes.c_int()
    if not driver or driver.cuDriverGetVersion(ctypes.byref(number)) or not number.value:
        return None
    return number.value // 1000, number.value % 1000 // 10


def torch_without_cuda() -> str | None:
    """Return torch's version if it is a CPU-only build."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    with suppress(PackageNotFoundError):
        if (found := version("torch")).endswith("+cpu"):
            return found
    return None


def resolve_device(name: str) -> str:
    """Return ``cpu`` or ``cuda:N`` for a name such as ``auto``; UnfitError without such a GPU."""
    if name == "cpu":
        return "cpu"
    if not (match := re.fullmatch(r"auto|cuda(?::(\d+))?", name)):
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, but is '{name}'")
    count = torch.cuda.device_count()
    if name == "auto" and count == 0:
        return "cpu"
    if count == 0:
        why = "finds no GPU" if torch.version.cuda else f"{torch.__version__} is built without CUDA"
        raise NoGPUError(f"device {name} needs a GPU, but torch {why}; use --device cpu")
    index = int(match[1] or 0)
    if index >= count:
        there = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise NoGPUError(f"there is no {name}; this machine has {there}")
    return f"cuda:{index}"


def let_threads_sleep(environ: MutableMapping[str, str]) -> None:
    """Make idle OpenMP threads sleep, not spin, unless the user set otherwise."""
    environ.setdefault("OMP_WAIT_POLICY", "passive")


def is_broken(device: str) -> bool:
    """Tell whether a crashed kernel made a GPU unusable."""
    if device == "cpu":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def core_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str | None:
    """Return the CPU's name."""
    names = (line for line in kernel_files.first_core() if line.startswith("model name"))
    return next(names, "").partition(":")[2].strip() or platform.processor() or None


class UnreadableError(Exception):
    """A value cannot be read on this machine."""


class Nvml(NamedTuple):
    """NVML and a device's handle."""

    library: Any
    handle: Any


def open_nvml(device: str) -> Nvml:
    """Return NVML for a torch device; UnreadableError if it is missing or fails."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        raise UnreadableError("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{gpu_uuid(device)}"))
    except pynvml.NVMLError as error:
        raise UnreadableError(f"NVML: {error}") from None
