"""NVML's handle of a GPU, through nvidia-ml-py."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from losscli.machine.devices import gpu_uuid


class UnreadableError(Exception):
    """A value cannot be read on this machine; the message says why."""


class Nvml(NamedTuple):
    """NVML and a device's handle."""

    library: Any
    """pynvml, or a test's fake."""
    handle: Any


def open_nvml(device: str, uuid_of: Callable[[str], str | None] = gpu_uuid) -> Nvml:
    """Return NVML for a torch device; UnreadableError if it is missing or fails."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        raise UnreadableError("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid_of(device)}"))
    except pynvml.NVMLError as error:
        raise UnreadableError(f"NVML: {error}") from None
