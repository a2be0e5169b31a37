"""The description of the machine in a record."""

import platform
from pathlib import Path
from typing import Any

import losscli
from losscli.errors import UnfitError
from losscli.machine.commands import cxx, first_line
from losscli.machine.commits import commit_of
from losscli.machine.devices import core_count, cpu_model
from losscli.machine.memory import cache_bytes, memory_bytes
from losscli.machine.pytorch import torch

SOURCES = Path(losscli.__file__).resolve().parents[1]
GPU_FACTS = (
    *("gpu", "gpu_sms", "gpu_memory_bytes", "gpu_cache_bytes", "gpu_capability", "gpu_driver"),
)
"""Facts about a GPU; None on a CPU."""


def describe(device: str) -> dict[str, Any]:
    """Return the facts that results depend on; None where unknown."""
    facts: dict[str, Any] = {
        "losscli": losscli.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_cuda": torch.version.cuda,
        "compiler": compiler(),
        "os": platform.platform(),
        "cpu": cpu_model(),
        "cpu_cores": core_count(),
        "cpu_cache_bytes": cache_bytes("cpu"),
        "memory_bytes": memory_bytes(),
        "threads": torch.get_num_threads(),
        "device": device,
        **dict.fromkeys(GPU_FACTS),
    }
    if device != "cpu":
        gpu = torch.cuda.get_device_properties(device)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        size = (gpu.multi_processor_count, gpu.total_memory, gpu.L2_cache_size)
        values = (gpu.name, *size, f"{gpu.major}.{gpu.minor}", first_line(query))
        facts |= zip(GPU_FACTS, values, strict=True)
    return facts


def commit() -> str | None:
    """Return losscli's commit; None outside of a checkout."""
    return commit_of(SOURCES) if (SOURCES / ".git").exists() else None


def compiler() -> str | None:
    """Return the C++ compiler's version line."""
    try:
        return first_line([*cxx(), "--version"])
    except UnfitError:
        return None
