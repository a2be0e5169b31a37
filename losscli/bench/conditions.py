"""The state of the machine during sampling: losscli reads it and never changes it."""

import os
import time
from collections.abc import Callable
from typing import Any

from losscli.machine import kernel_files
from losscli.machine.devices import UnreadableError, open_nvml
from losscli.machine.own_processes import is_ours, own_seconds
from losscli.machine.pytorch import torch

THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's bits for which samples are discarded; under steady load a GPU is at its power limit."""
TOLD_REASONS = THROTTLE_REASONS | {0x04: "power limit", 0x10: "sync boost"}


class Conditions:
    """Reads the machine's state while a case is sampled; this one records why it is unknown."""

    def __init__(self, unknown: str) -> None:
        self.unknown = unknown

    def begin(self) -> None:
        """Start a new record of conditions."""

    def slowed(self) -> bool:
        """Read the state; tell whether to discard the samples since the last reading."""
        return False

    def record(self) -> dict[str, Any]:
        """Return the conditions since ``begin`` as JSON values."""
        return {"unknown": self.unknown}


class CpuConditions(Conditions):
    """The load and other programs' CPU time; too imprecise to discard samples."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        own_time: Callable[[], float] = own_seconds,
    ) -> None:
        self.clock, self.own_time = clock, own_time
        self.begin()

    def begin(self) -> None:
        self._start = self.clock(), self.own_time(), _busy_seconds()

    def others(self) -> float | None:
        """Return the fraction of the cores' time that other programs took, if known."""
        wall, own, busy = self._start
        wall, own = self.clock() - wall, self.own_time() - own
        now = _busy_seconds()
        # The kernel counts what cores do in hundredths of a second.
        if wall < 0.05 or busy is None or now is None:
            return None
        return round(max(now - busy - own, 0.0) / wall / len(os.sched_getaffinity(0)), 3)

    def record(self) -> dict[str, Any]:
        return {
            "threads": torch.get_num_threads(),
            "load_average": os.getloadavg()[0],
            "others": self.others(),
            "governor": governor(),
        }


class GpuConditions(Conditions):
    """Clocks, temperature, power, and why the GPU ran slower than it can."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        self.begin()

    def begin(self) -> None:
        self._since = time.time_ns() // 1000
        self._seen: dict[str, list[float]] = {}
        self._reasons = self._previous = 0
        self.slowed()

    def slowed(self) -> bool:
        """Return whether the GPU was throttled at either end of a batch."""
        nvml, handle = self.nvml, self.handle
        self._note("sm_clock_hz", 1e6, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
        self._note("memory_clock_hz", 1e6, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM)
        self._note("celsius", 1, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        self._note("watts", 1e-3, nvml.nvmlDeviceGetPowerUsage, handle)
        reasons = int(self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0)
        either = reasons | self._previous
        self._previous = reasons
        self._reasons |= either
        return bool(either & sum(THROTTLE_REASONS))

    def record(self) -> dict[str, Any]:
        ranges = {name: [min(seen), max(seen)] for name, seen in self._seen.items()}
        told = [name for bit, name in TOLD_REASONS.items() if self._reasons & bit]
        known = {} if (others := self.others()) is None else {"others": others}
        return {**ranges, "throttle_reasons": told, **known}

    def others(self) -> float | None:
        """Return the largest fraction of the GPU's time that another program took, if known."""
        # NVML uses process ids from outside of containers, and may lack this process.
        running = self._ask(self.nvml.nvmlDeviceGetComputeRunningProcesses, self.handle)
        if running is None or not any(is_ours(each.pid) for each in running):
            return None
        ask, handle = self.nvml.nvmlDeviceGetProcessUtilization, self.handle
        samples = self._ask(ask, handle, self._since)  # None where nothing was sampled
        used = [each.smUtil for each in samples or () if not is_ours(each.pid)]
        return max(used, default=0) / 100

    def _note(self, name: str, unit: float, ask: Callable[..., float], *arguments: Any) -> None:
        if (value := self._ask(ask, *arguments)) is not None:
            self._seen.setdefault(name, []).append(value * unit)

    def _ask(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except self.nvml.NVMLError:
            return None


def look_at(device: str) -> Conditions:
    """Return the reader of a device's conditions."""
    if device == "cpu":
        return CpuConditions()
    try:
        return GpuConditions(*open_nvml(device))
    except UnreadableError as error:
        return Conditions(str(error))


def _busy_seconds() -> float | None:
    """Return how long any program kept this process's cores busy; None if unknown."""
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    lines = map(str.split, kernel_files.text_of(kernel_files.PROC / "stat").splitlines())
    # All but the idle time, which is the fourth and fifth number.
    ticks = sum(sum(map(int, (*n[:3], *n[5:8]))) for name, *n in lines if name in ours)
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else None


def governor() -> str | None:
    """Return the frequency governor of the first core."""
    path = kernel_files.SYS / "devices/system/cpu/cpu0/cpufreq/scaling_governor"
    return kernel_files.text_of(path).strip() or None
