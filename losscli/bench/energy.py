"""The energy of a call, by counters of NVML or RAPL that change only at intervals."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from losscli.machine import kernel_files
from losscli.machine.devices import Nvml, UnreadableError, open_nvml

SECONDS = 1.0
"""The shortest time of the calls."""
CHANGES = 8
"""The least number of counter updates during the calls."""
LONGEST_SECONDS = 6.0
"""The time after which a counter with too few updates is given up."""


class Energy(NamedTuple):
    """The energy of a call; None where it could not be measured."""

    joules: float | None = None
    watts: float | None = None
    reason: str = ""


Meter = Callable[[], float]
"""Returns the joules since some fixed moment."""


def gpu_meter(nvml: Nvml) -> Meter:
    """Return the counter of a GPU."""
    library, handle = nvml

    def joules() -> float:
        try:
            return float(library.nvmlDeviceGetTotalEnergyConsumption(handle)) * 1e-3
        except library.NVMLError as error:
            raise UnreadableError(f"NVML: {error}") from None

    return joules


def cpu_meter() -> Meter:
    """Return the sum of a CPU's package counters; UnreadableError if there is none."""
    folder = kernel_files.SYS / "class/powercap"
    zones = (p for p in folder.glob("intel-rapl:*") if p.name.count(":") == 1)
    # Another zone, psys, holds the packages and more.
    names = ((kernel_files.text_of(zone / "name"), zone) for zone in zones)
    if not (found := sorted(zone for name, zone in names if name.startswith("package"))):
        raise UnreadableError("this system has no RAPL counter (/sys/class/powercap)")
    ends = [_number(zone / "max_energy_range_uj") for zone in found]
    before = [_number(zone / "energy_uj") for zone in found]
    total = sum(before)

    def joules() -> float:
        nonlocal before, total
        now = [_number(zone / "energy_uj") for zone in found]
        # A counter starts again at its end.
        total += sum(n - b + end * (n < b) for n, b, end in zip(now, before, ends, strict=True))
        before = now
        return total * 1e-6

    return joules


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except PermissionError:
        raise UnreadableError(f"only root may read {path}: `chmod a+r` it as root") from None
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}") from None


def _meter_of(device: str) -> Meter:
    return cpu_meter() if device == "cpu" else gpu_meter(open_nvml(device))


def measure(
    device: str,
    looped: Callable[[int], object],
    seconds: float,
    *,
    meter_of: Callable[[str], Meter] = _meter_of,
) -> Energy:
    """Measure a call of about ``seconds``; ``looped`` makes so many calls and waits for them."""
    batch = max(1, min(100_000, round(0.01 / max(seconds, 1e-9))))  # calls of 10 ms
    changes: list[tuple[float, float]] = []
    ended = threading.Event()

    def read(meter: Meter, last: float) -> None:
        while not ended.wait(0.001):
            if (joules := meter()) != last:
                changes.append((time.perf_counter(), joules))
                last = joules

    try:
        meter = meter_of(device)
        with ThreadPoolExecutor(1) as pool:
            try:
                reading = pool.submit(read, meter, meter())
                made = [(time.perf_counter(), 0)]
                while (elapsed := made[-1][0] - made[0][0]) < SECONDS or len(changes) <= CHANGES:
                    if reading.done() or elapsed >= LONGEST_SECONDS:
                        break
                    looped(batch)
                    made.append((time.perf_counter(), made[-1][1] + batch))
            finally:
                ended.set()
        reading.result()
    except UnreadableError as error:
        return Energy(reason=str(error))
    if len(changes) > CHANGES:
        return of_a_call(changes, made)
    return Energy(reason=f"the counter changed {len(changes)} times in {elapsed:.0f} s")


def of_a_call(changes: Sequence[tuple[float, float]], made: Sequence[tuple[float, int]]) -> Energy:
    """Return a call's energy, from times with joules from then on and with calls until then."""
    (began, first), *_, (ended, last) = (e for e in changes if made[0][0] <= e[0] <= made[-1][0])
    moments, counts = zip(*made, strict=True)
    calls = float(np.diff(np.interp([began, ended], moments, counts))[0])
    return Energy((last - first) / calls, (last - first) / (ended - began))
