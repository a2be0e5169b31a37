"""The panel of the environment: the machine, the software and the command of a record."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from losscli.render.html.panel import Panel, Row, Table
from losscli.runs.records import BenchResult, Header
from losscli.units import format_bytes

_LABELS = {
    "losscli": "losscli", "commit": "commit", "python": "Python", "torch": "torch",
    "torch_cuda": "CUDA of torch", "compiler": "C++ compiler", "os": "operating system",
    "cpu": "CPU", "cpu_cores": "CPU cores", "cpu_cache_bytes": "CPU cache",
    "memory_bytes": "memory", "threads": "threads", "device": "device", "gpu": "GPU",
    "gpu_sms": "multiprocessors", "gpu_memory_bytes": "GPU memory", "gpu_cache_bytes": "L2 cache",
    "gpu_capability": "compute capability", "gpu_driver": "driver", "allocator": "allocator",
}  # fmt: skip


def panel(header: Header, results: Iterable[object] = ()) -> Panel:
    """Return the panel of a run."""
    facts: dict[str, str] = {}
    if header.command:
        facts["command"] = shlex.join(header.command)
    if header.created:
        facts["created"] = header.created
    for key, value in header.environment.items():
        if value is not None:
            facts[_LABELS.get(key, key)] = _written(key, value)
    facts |= _conditions([r.conditions for r in results if isinstance(r, BenchResult)])
    return of_facts(facts)


def of_facts(facts: Mapping[str, str]) -> Panel:
    """Return the panel of facts that are known already."""
    if not facts:
        return Panel("environment", "Environment", missing="The record says nothing of it.")
    rows = tuple(Row((name, text)) for name, text in facts.items())
    table = Table("Environment", ("fact", "value"), rows, words=2)
    return Panel("environment", "Environment", tables=(table,))


def _written(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int | float):
        return format_bytes(value)
    return str(value)


def _conditions(conditions: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return the range of what was read of a GPU while it was timed."""
    facts = {}
    for key, label, scale, unit in (
        ("sm_clock_hz", "clock while timed", 1e-6, "MHz"),
        ("memory_clock_hz", "memory clock while timed", 1e-6, "MHz"),
        ("celsius", "temperature while timed", 1.0, "°C"),
        ("watts", "power while timed", 1.0, "W"),
    ):
        ranges = [each[key] for each in conditions if _is_range(each.get(key))]
        if ranges:
            low, high = min(r[0] for r in ranges) * scale, max(r[1] for r in ranges) * scale
            facts[label] = f"{low:.0f} to {high:.0f} {unit}"
    return facts


def _is_range(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(each, int | float) for each in value)
    )
