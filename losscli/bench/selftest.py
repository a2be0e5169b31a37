"""The timer's self-test: known times, and pairs of calls with and without a difference."""

import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from losscli.bench.sampling import Contender, interleave
from losscli.bench.statistics import paired_ratios
from losscli.config.schema import Timing
from losscli.implementations.timer import Call, Clock, Timer, make_timer
from losscli.runs.judgements import FASTER, SAME, SLOWER
from losscli.runs.records import FAIL, KNOWN_TIME, OVERHEAD, PASS, TestStatus, TimerTestResult

TIMING = Timing(min_time=0.03, max_time=0.3)
RIGHT = 0.95
RUNS_OF_THE_SAME = 100
RUNS_OF_EACH_WAY = 20
PLANTED = 20
"""Calls of a kernel that are compared with one more: 5 %."""
SPIN_SECONDS = (500e-6, 2e-3)
"""Known times, long enough that a launch is within the tolerance."""
SPIN_TOLERANCE = 0.02
LARGEST_OVERHEAD = {"cpu": 1e-6, "cuda": 20e-6}
"""Longest time of an empty call: a GPU's events are microseconds apart."""
KERNEL_ELEMENTS = {"cpu": 2**14, "cuda": 2**22}
"""The compared kernel's elements: microseconds of work for one thread."""


@dataclass(frozen=True)
class Bench:
    """A device, its timer, and work of known length."""

    device: str
    timer: Timer
    spin: Callable[[float], Call]
    """Returns a call that keeps the device busy for so many seconds."""
    kernel: Call
    clock: Callable[[], float] = time.perf_counter


def bench_of(device: str) -> Bench:
    """Return the bench of this machine, with a warm cache: the work is small."""
    kind = torch.device(device).type
    values = torch.ones(KERNEL_ELEMENTS[kind], device=device)
    spin = spin_on_cpu if kind == "cpu" else spinner_on_gpu(device)
    return Bench(device, make_timer(device, False), spin, lambda: values.mul_(1.0))


@dataclass(frozen=True)
class TimerTest:
    """One part of the self-test."""

    name: str
    measure: Callable[[], TimerTestResult]


def plan(bench: Bench) -> list[TimerTest]:
    """Return the parts of the self-test."""
    spins = [bench.spin(SPIN_SECONDS[0]), bench.spin(SPIN_SECONDS[0] * (1 + 1 / PLANTED))]
    kernels = [_repeat(bench.kernel, PLANTED), _repeat(bench.kernel, PLANTED + 1)]
    pairs = [(SAME, "kernel", [bench.kernel] * 2, RUNS_OF_THE_SAME)]
    for name, pair in (("spin", spins), ("kernel", kernels)):
        pairs.append((FASTER, name, pair, RUNS_OF_EACH_WAY))
        pairs.append((SLOWER, name, pair[::-1], RUNS_OF_EACH_WAY))
    return [
        *(TimerTest(KNOWN_TIME, partial(_known_time, bench, seconds)) for seconds in SPIN_SECONDS),
        TimerTest(OVERHEAD, partial(_overhead, bench)),
        *(TimerTest(f"{each[0]} {each[1]}", partial(_compare, bench, *each)) for each in pairs),
    ]


def run(part: TimerTest) -> Generator[TimerTestResult, None, None]:
    """Yield the result of a part."""
    yield part.measure()


def spin_on_cpu(seconds: float, clock: Clock = time.perf_counter_ns) -> Call:
    """Return a call that reads the clock for a number of seconds."""
    nanoseconds = round(seconds * 1e9)

    def spin() -> None:
        until = clock() + nanoseconds
        while clock() < until:
            pass

    return spin


def spinner_on_gpu(device: str) -> Callable[[float], Call]:
    """Return a factory of kernels that count cycles, calibrated by the host's clock."""
    cycles = 10**8

    def wait(count: int) -> float:
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        torch.cuda._sleep(count)
        torch.cuda.synchronize(device)
        return time.perf_counter() - start

    with torch.cuda.device(device):
        wait(cycles)
        differences = sorted(wait(2 * cycles) - wait(cycles) for _ in range(5))
    per_second = cycles / differences[len(differences) // 2]
    return lambda seconds: partial(torch.cuda._sleep, round(seconds * per_second))


def _known_time(bench: Bench, seconds: float) -> TimerTestResult:
    found = _fastest(bench, bench.spin(seconds))
    status: TestStatus = PASS if abs(found / seconds - 1) <= SPIN_TOLERANCE else FAIL
    reason = f"off by {found / seconds - 1:+.2%}; allowed: {SPIN_TOLERANCE:.0%}"
    return TimerTestResult(KNOWN_TIME, "spin", status, reason, found, seconds)


def _overhead(bench: Bench) -> TimerTestResult:
    found = _fastest(bench, lambda: None)
    allowed = LARGEST_OVERHEAD[torch.device(bench.device).type]
    status: TestStatus = PASS if found <= allowed else FAIL
    reason = "" if status == PASS else "an empty call takes too long"
    return TimerTestResult(OVERHEAD, "nothing", status, reason, found, allowed)


def _fastest(bench: Bench, call: Call) -> float:
    """Return the shortest sample: other programs only lengthen work."""
    return min(bench.timer.measure([bench.timer.warm_up(call)] * 31))


def _compare(
    bench: Bench, expected: str, subject: str, pair: Sequence[Call], runs: int
) -> TimerTestResult:
    counts: Counter[str] = Counter()
    for seed in range(runs):
        contenders = [Contender(name, call) for name, call in zip("ab", pair, strict=True)]
        for contender in contenders:
            contender.warm_up(bench.timer)
        interleave(bench.timer, contenders, TIMING, seed=seed, clock=bench.clock)
        counts[paired_ratios({c.name: c.samples for c in contenders})["a"]["b"].verdict] += 1
    right = counts.pop(expected, 0)
    reason = ", ".join(f"{count} times {verdict}" for verdict, count in counts.items())
    status: TestStatus = PASS if right >= RIGHT * runs else FAIL
    return TimerTestResult(expected, subject, status, reason, right=right, runs=runs)


def _repeat(call: Call, times: int) -> Call:
    def repeat() -> None:
        for _ in range(times):
            call()

    return repeat
