"""Timers with one interface: a clock for the CPU and events for a GPU; see docs/measuring.md.

Ranks must make equally many calls, so their timers agree on what the number depends on and meet
before each sample.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from typing import Any, Protocol

import torch

from losscli.cases.axes import DEVICE, HOST, Cache, Mode
from losscli.errors import LosscliError
from losscli.machine import allocator
from losscli.machine.memory import cache_bytes
from losscli.processes.garbage import without_garbage_collection

Call = Callable[[], object]
Clock = Callable[[], int]

MINIMUM_SAMPLE_SECONDS = 50e-6
"""Shortest block of calls: a thousand times a clock reading."""
MINIMUM_HOST_SAMPLE_SECONDS = 2e-3
"""The same if a sample ends with a wait for a GPU, which costs some 10 us."""
WARM_UP_SECONDS = 0.02
WARM_UP_CALLS = 2
HOST_CALLS = 200
HOST_CALLS_SECONDS = 0.1
"""The most calls that measure the host's time on a GPU, and their time beyond a warm-up."""
QUEUED = 24
"""Samples queued on a GPU at once: with some 15 launches each, below a stream's limit of 1,024."""
QUEUE_MARGIN = 1.5
QUEUE_MARGIN_LIMIT = 12.0
"""How much longer than the host's estimated time the GPU is kept busy, at first and at most."""
BUSY_SECONDS = 2e-3
"""How long the GPU is kept busy at least, to see whether a call waits for it."""
BETWEEN_CALLS_SECONDS = 40e-6
"""The host's time for the events around a call and its preparation."""


@dataclass(frozen=True)
class Warm:
    """A warmed-up call and its measurements."""

    call: Call
    repeats: int
    """Calls per sample."""
    host_seconds: float
    """How long one call keeps the host busy."""
    before: Call | None = None
    """Called before each sample, outside the timed region."""
    name: str = ""
    waits: bool = False
    """Whether the call waits for the GPU, so that nothing can be queued behind it."""
    of_ranks: list[tuple[float, ...]] = field(default_factory=list, compare=False)
    """Each rank's seconds in each sample so far, if there are several ranks."""


class CallFailedError(Exception):
    """A call raised while it was sampled."""

    def __init__(self, warm: Warm, error: Exception) -> None:
        super().__init__(f"{warm.name} raised {type(error).__name__}")
        self.warm, self.error = warm, error


@contextmanager
def sampling(warm: Warm) -> Iterator[None]:
    """Turn a call's exception into CallFailedError."""
    try:
        yield
    except LosscliError:  # a failed build, say: no case of this run could do better
        raise
    except Exception as error:
        raise CallFailedError(warm, error) from None


class Timer(Protocol):
    """Takes samples in seconds per call; the timed region contains only the call."""

    @property
    def gaps(self) -> int:
        """Batches in which the GPU waited for the host."""

    def warm_up(self, call: Call) -> Warm:
        """Call until caches, allocators and lazy compilation have settled."""

    def measure(self, queue: Sequence[Warm]) -> list[float]:
        """Sample each call in order; CallFailedError names one that raised."""


@dataclass(eq=False)
class _RankTimer:
    evict: Call | None = None
    clock: Clock = time.perf_counter_ns
    _: KW_ONLY
    agree: Callable[[float], float] = lambda number: number
    """Returns one number for all ranks from each rank's own."""
    meet: Call | None = None
    gaps: int = field(default=0, init=False)

    def _now(self) -> int:
        return int(self.agree(self.clock()))

    def _prepare(self, warm: Warm) -> None:
        for step in (warm.before, self.evict, self.meet):
            if step:
                step()


class CpuTimer(_RankTimer):
    """Times a block of calls, or single calls if the cache is evicted before each."""

    sample_seconds = MINIMUM_SAMPLE_SECONDS

    def warm_up(self, call: Call) -> Warm:

        def measure() -> float:
            return self.agree(self._time(call, 1))

        seconds: list[float] = []
        if allocator.keeps():
            fresh_bytes = allocator.fresh_bytes
            seconds = allocator.settle(measure, self._now, lambda: int(self.agree(fresh_bytes())))
        seconds = _settle(measure, self._now, made=seconds)
        fastest = max(min(seconds), 1e-9)
        repeats = 1 if self.evict else math.ceil(self.sample_seconds / fastest)
        return Warm(call, repeats, fastest)

    def measure(self, queue: Sequence[Warm]) -> list[float]:
        samples = []
        with without_garbage_collection():
            for warm in queue:
                self._prepare(warm)
                with sampling(warm):
                    samples.append(self._time(warm.call, warm.repeats))
        return samples

    def _time(self, call: Call, repeats: int) -> float:
        start = self.clock()
        for _ in range(repeats):
            call()
        return (self.clock() - start) * 1e-9 / repeats


@dataclass(eq=False)
class HostTimer(CpuTimer):
    """Times a loop of GPU calls on the host: launch time or work time, whichever is longer."""

    sample_seconds = MINIMUM_HOST_SAMPLE_SECONDS
    wait: Call = field(kw_only=True)

    def _time(self, call: Call, repeats: int) -> float:
        self.wait()
        start = self.clock()
        for _ in range(repeats):
            call()
        self.wait()
        return (self.clock() - start) * 1e-9 / repeats


class CudaTimer(_RankTimer):
    """Records events around each call on a stream kept busy until all are queued."""

    def __init__(self, device: str, evict: Call | None = None, **ranks: Any) -> None:
        super().__init__(evict, **ranks)
        self.device, self.margin = device, QUEUE_MARGIN
        with torch.cuda.device(device):
            self.queued = torch.cuda.Event()
            self.events = [
                (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                for _ in range(QUEUED)
            ]
            self.cycles_per_second = self._cycles_per_second()

    def warm_up(self, call: Call) -> Warm:
        call()
        seconds = _settle(lambda: self.agree(self._host_seconds(call)), self._now, HOST_CALLS)
        host_seconds = sorted(seconds)[len(seconds) // 2]
        waits = bool(self.agree(self._waits(call, host_seconds)))
        return Warm(call, 1, host_seconds, waits=waits)

    def measure(self, queue: Sequence[Warm]) -> list[float]:
        samples = []
        with without_garbage_collection(), torch.cuda.device(self.device):
            for batch in _batches(queue):
                self._run_in_time(batch)
                events = self.events[: len(batch)]
                samples += [start.elapsed_time(end) * 1e-3 for start, end in events]
        return samples

    def _host_seconds(self, call: Call) -> float:
        torch.cuda.synchronize(self.device)
        start = self.clock()
        call()
        return (self.clock() - start) * 1e-9

    def _waits(self, call: Call, host_seconds: float) -> bool:
        busy = max(BUSY_SECONDS, host_seconds * QUEUE_MARGIN_LIMIT)
        with torch.cuda.device(self.device):
            torch.cuda.synchronize()
            torch.cuda._sleep(int(busy * self.cycles_per_second))
            self.queued.record()
            call()
            waits = bool(self.queued.query())
            torch.cuda.synchronize()
        return waits

    def _run_in_time(self, batch: Sequence[Warm]) -> None:
        while self.agree(not self._run(batch)) and not any(warm.waits for warm in batch):
            if self.margin >= QUEUE_MARGIN_LIMIT:
                self.gaps += 1
                return
            self.margin *= 2

    def _run(self, batch: Sequence[Warm]) -> bool:
        host_seconds = sum(warm.host_seconds + BETWEEN_CALLS_SECONDS for warm in batch)
        torch.cuda.synchronize()
        torch.cuda._sleep(int(host_seconds * self.margin * self.cycles_per_second))
        self.queued.record()
        for warm, (start, end) in zip(batch, self.events, strict=False):
            self._prepare(warm)
            with sampling(warm):
                start.record()
                warm.call()
                end.record()
        in_time = not self.queued.query()
        torch.cuda.synchronize()
        return in_time

    def _cycles_per_second(self) -> float:
        """Measure the waiting kernel's rate; the first run only wakes the GPU."""
        cycles = 10_000_000
        start, end = self.events[0]
        for _ in range(2):
            start.record()
            torch.cuda._sleep(cycles)
            end.record()
            torch.cuda.synchronize()
        return cycles / float(start.elapsed_time(end) * 1e-3)


def _batches(queue: Sequence[Warm]) -> Iterator[Sequence[Warm]]:
    for waits, together in groupby(queue, key=lambda warm: warm.waits):
        calls, size = list(together), 1 if waits else QUEUED
        for first in range(0, len(calls), size):
            yield calls[first : first + size]


def needs_eviction(device: str, cache: Cache, working_set: int) -> bool:
    """Tell whether calls touching ``working_set`` bytes need cache eviction."""
    return cache == "cold" and (device != "cpu" or working_set <= cache_bytes("cpu"))


def make_timer(device: str, evicts: bool, mode: Mode = DEVICE, **ranks: Any) -> Timer:
    """Return a device's timer, perhaps with cache eviction; ``ranks``: ``agree`` and ``meet``."""
    size = cache_bytes(device)
    if device == "cpu":
        # Read, as written lines would be written back in the sample; a quarter larger, as a cache
        # is not exactly an LRU's.
        return CpuTimer(torch.ones(size * 5 // 4 // 4).sum if evicts else None, **ranks)
    if mode == HOST:
        return HostTimer(wait=lambda: torch.cuda.synchronize(device), **ranks)
    buffer = torch.empty(2 * size, dtype=torch.uint8, device=device) if evicts else None
    return CudaTimer(device, None if buffer is None else buffer.zero_, **ranks)


def _settle(
    measure: Callable[[], float],
    clock: Clock,
    calls: int = WARM_UP_CALLS,
    made: Sequence[float] = (),
) -> list[float]:
    """Measure often and long enough; return all seconds, including those ``made`` before."""
    seconds = list(made)
    before = elapsed = sum(seconds)
    start = clock()
    while (
        len(seconds) < WARM_UP_CALLS
        or elapsed < WARM_UP_SECONDS
        or (len(seconds) < calls and elapsed < HOST_CALLS_SECONDS)
    ):
        seconds.append(measure())
        elapsed = before + (clock() - start) * 1e-9
    return seconds
