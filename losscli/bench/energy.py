"""The energy of a call: that of many calls one after another, by a counter of the hardware.

NVML counts the energy of a GPU in millijoules, RAPL that of a CPU's packages in microjoules. Both
change their counter only every so often, so calls go on until it has changed many times, and what
counts is what lies between two of its changes. No single reading of a power is used. A counter is
of the whole GPU or all cores: what other programs take meanwhile is in it, and so is what the
device takes at rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from losscli.machine import kernel_files
from losscli.machine.nvml import Nvml, UnreadableError, open_nvml

SECONDS = 1.0
"""How long calls are made at least."""
CHANGES = 8
"""Changes of the counter between which the energy is taken, at least."""
LONGEST_SECONDS = 6.0
"""The time after which a counter that changes so rarely is given up."""
BATCH_SECONDS = 0.01
"""The time of the calls between two readings: so much of the time may lie beside the changes."""
MOST_CALLS = 100_000


class Energy(NamedTuple):
    """The energy of a call; None where it could not be measured."""

    joules: float | None = None
    watts: float | None = None
    """Over the time of the calls."""
    reason: str = ""
    """Why it is unknown."""


class Meter(Protocol):
    """Counts energy."""

    def joules(self) -> float:
        """Return the joules since some moment in the past, which never fall."""
        ...


@dataclass(frozen=True)
class GpuMeter:
    """The counter of a GPU."""

    nvml: Nvml

    def joules(self) -> float:
        """See :class:`Meter`."""
        library, handle = self.nvml
        try:
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1e-3
        except library.NVMLError as error:
            raise UnreadableError(f"NVML: {error}") from None


@dataclass
class _Zone:
    """The counter of a package, which begins anew at its end."""

    path: Path
    range: int
    before: int
    turns: int = 0

    def microjoules(self) -> int:
        now = _number(self.path / "energy_uj")
        self.turns += now < self.before
        self.before = now
        return now + self.turns * self.range


class CpuMeter:
    """The counters of all packages of a CPU."""

    def __init__(self) -> None:
        """Find them.

        Raises:
            UnreadableError: there is none, or only root may read them.
        """
        folder = kernel_files.SYS / "class/powercap"
        found = sorted(p for p in folder.glob("intel-rapl:*") if p.name.count(":") == 1)
        if not found:
            raise UnreadableError("this system has no RAPL counter (/sys/class/powercap)")
        self._zones = [
            _Zone(path, _number(path / "max_energy_range_uj"), _number(path / "energy_uj"))
            for path in found
        ]

    def joules(self) -> float:
        """See :class:`Meter`."""
        return sum(zone.microjoules() for zone in self._zones) * 1e-6


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except PermissionError:
        raise UnreadableError(f"only root may read {path}: `chmod a+r` it as root") from None
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from None


def meter_of(device: str) -> Meter:
    """Return the meter of a device.

    Raises:
        UnreadableError: it has none that can be read.
    """
    return CpuMeter() if device == "cpu" else GpuMeter(open_nvml(device))


def measure(
    device: str,
    looped: Callable[[int], object],
    seconds: float,
    *,
    meter_of: Callable[[str], Meter] = meter_of,
    clock: Callable[[], float] = time.perf_counter,
) -> Energy:
    """Measure the energy of a call.

    Args:
        device: whose energy.
        looped: makes so many calls, and waits for them.
        seconds: that a call takes, about.
        meter_of: returns the machine's meter, or a test's fake.
        clock: seconds that never go back.
    """
    batch = max(1, min(MOST_CALLS, round(BATCH_SECONDS / max(seconds, 1e-9))))
    try:
        meter = meter_of(device)
        last, calls, start = meter.joules(), 0, clock()
        changes: list[tuple[float, int, float]] = []
        while (elapsed := clock() - start) < SECONDS or len(changes) <= CHANGES:
            if elapsed >= LONGEST_SECONDS:
                text = f"the counter changed {len(changes)} times in {elapsed:.0f} s"
                return Energy(reason=text)
            looped(batch)
            calls += batch
            now = meter.joules()
            if now != last:
                changes.append((now, calls, clock()))
                last = now
    except UnreadableError as error:
        return Energy(reason=str(error))
    (first, calls_before, began), (end, calls, ended) = changes[0], changes[-1]
    joules = end - first
    return Energy(joules / (calls - calls_before), joules / (ended - began))
