"""Differences between two runs' machines."""

from collections.abc import Mapping
from typing import Any

from losscli.files.record import Record
from losscli.machine.allocator import DEFAULT

Facts = Mapping[str, Any]
CPU = "cpu"
_DECISIVE = {CPU: ("cpu", "threads", "allocator"), "cuda": ("gpu", "gpu_sms")}
"""Facts that make a device's times incomparable if they differ."""
SOFTWARE = ("commit", "losscli", "torch", "torch_cuda", "gpu_driver", "compiler", "kernels")
"""Software that may not change within a run, because it may change the kernels."""
_HARDWARE = ("cpu", "cpu_cores", "threads", "gpu", "gpu_capability", "device")
_NOTED = (*SOFTWARE, "python", "os", *_HARDWARE)
"""Facts that may explain different times. Others, such as a temperature, always differ."""
MIXED = "mixed_machines"
"""A run merged from several machines, whose times cannot be compared."""
LABELS = {
    "torch_cuda": "CUDA of torch", "compiler": "C++ compiler", "os": "operating system",
    "cpu": "CPU", "cpu_cores": "CPU cores", "cpu_cache_bytes": "CPU cache",
    "memory_bytes": "memory", "gpu": "GPU", "gpu_sms": "multiprocessors",
    "gpu_memory_bytes": "GPU memory", "gpu_cache_bytes": "L2 cache",
    "gpu_capability": "compute capability", "gpu_driver": "driver", "python": "Python",
}  # fmt: skip
"""What people call the facts of an environment."""
NOT_COMPARABLE, NOTED = "not comparable", "note"


class Difference(Record, frozen=True):
    """A fact that differs between two environments."""

    fact: str
    before: Any = None
    after: Any = None
    grade: str = ""

    @property
    def decisive(self) -> bool:
        """Whether times are not comparable."""
        return self.grade == NOT_COMPARABLE

    def __str__(self) -> str:
        both = (self.before, self.after)
        before, after = ("unknown" if value is None else value for value in both)
        return f"{LABELS.get(self.fact, self.fact)}: {before}, then {after}"


def differences(before: Facts, after: Facts, *, host: bool = False) -> list[Difference]:
    """Return environments' differences, the decisive first; ``host``: for host time too."""
    kind, other = _kind(before), _kind(after)
    if kind != other:
        return [Difference("device", kind, other, NOT_COMPARABLE)]
    decisive = (*_DECISIVE[kind], *(("cpu",) if host and kind != CPU else ()))
    found = [
        Difference(fact, one, other, NOT_COMPARABLE if fact in decisive else NOTED)
        for fact in dict.fromkeys((*decisive, *_NOTED))
        if (one := _fact(before, fact)) != (other := _fact(after, fact))
    ]
    if MIXED in before or MIXED in after:
        one, other = ("several" if MIXED in facts else "one" for facts in (before, after))
        found.append(Difference("machines", one, other, NOT_COMPARABLE))
    return sorted(found, key=lambda difference: not difference.decisive)


def _fact(facts: Facts, fact: str) -> Any:
    return facts.get(fact, DEFAULT if fact == "allocator" else None)  # old records lack it


def parts_ways(difference: Difference) -> bool:
    """Tell whether a run cannot continue after this change."""
    return difference.decisive or difference.fact in SOFTWARE


def _kind(facts: Facts) -> str:
    device = str(facts.get("device", CPU)).partition(":")[0]
    return device if device in _DECISIVE else CPU
