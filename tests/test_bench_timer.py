"""Timers: on the CPU by a fake clock, on a GPU by work of known length."""

import gc
import time
from typing import Any

import pytest
import torch

from losscli.implementations import timer as timers
from losscli.implementations.timer import (
    CallFailedError,
    CpuTimer,
    CudaTimer,
    HostTimer,
    Warm,
    make_timer,
    needs_eviction,
)
from losscli.machine import allocator
from tests.fake_time import FakeClock


def test_a_sample_lasts_at_least_50_microseconds():
    for seconds, repeats in ((1e-6, 50), (30e-6, 2), (50e-6, 1), (2.0, 1)):
        clock = FakeClock()
        assert CpuTimer(clock=clock).warm_up(clock.spend(seconds)).repeats == repeats


def test_long_call_is_warmed_up_twice(monkeypatch):
    clock = FakeClock()
    CpuTimer(clock=clock).warm_up(clock.spend(3.0))
    assert clock.seconds() == 6
    # Calls until the memory is steady count for the warm-up.
    monkeypatch.setattr(allocator, "keeps", lambda: True)
    CpuTimer(clock=clock).warm_up(clock.spend(0.5))
    assert clock.seconds() == 7


def test_a_call_is_warmed_up_until_it_needs_no_fresh_memory_but_not_for_long():
    def calls_of(fresh):
        clock, handed_out = FakeClock(), [0]

        def measure():
            handed_out[0] += (fresh.pop(0) if len(fresh) > 1 else fresh[0]) * 2**20
            return 1e-3

        return len(allocator.settle(measure, clock, lambda: handed_out[0]))

    assert [calls_of([0]), calls_of([256, 0, 256, 0])] == [2, 5]
    assert calls_of([256]) == allocator.FRESH_CALLS
    clock, handed_out = FakeClock(), iter(range(0, 2**40, 2**28))
    call = clock.spend(1.5)
    assert len(allocator.settle(lambda: call() or 1.5, clock, lambda: next(handed_out))) == 2


def test_a_gpu_is_warmed_up_until_the_time_of_the_host_is_known():
    def calls_of(seconds):
        clock = FakeClock()
        call = clock.spend(seconds)
        return len(timers._settle(lambda: call() or 1e-6, clock, timers.HOST_CALLS))

    # As long as any warm-up, both, often enough, at the limit, twice.
    assert list(map(calls_of, (10e-6, 100e-6, 250e-6, 1e-3, 3.0))) == [2000, 200, 200, 100, 2]


def test_samples_are_means_of_blocks_in_the_order_asked_for():
    clock = FakeClock()
    warm = Warm(clock.spend(1e-3, 3e-3), 2, 0.0)
    assert CpuTimer(clock=clock).measure([warm]) == pytest.approx([2e-3])
    slow, fast = Warm(clock.spend(2.0), 1, 0.0), Warm(clock.spend(1.0), 1, 0.0)
    assert CpuTimer(clock=clock).measure([slow, fast, slow]) == pytest.approx([2, 1, 2])


def test_the_cache_is_evicted_before_each_sample_and_not_within_its_time():
    clock = FakeClock()
    events = []

    def evict():
        events.append("evict")
        clock.spend(5.0)()

    def call():
        events.append("call")
        clock.spend(1e-6)()

    timer = CpuTimer(evict, clock)
    warm = timer.warm_up(call)
    events.clear()
    assert timer.measure([warm, warm]) == pytest.approx([1e-6, 1e-6])
    assert events == ["evict", "call", "evict", "call"]


def test_preparation_of_a_sample_is_not_in_its_time():
    clock = FakeClock()
    events = []
    warm = Warm(
        lambda: events.append("call") or clock.spend(1e-3)(),
        2,
        0.0,
        before=lambda: events.append("before") or clock.spend(5.0)(),
    )
    timer = CpuTimer(lambda: events.append("evict"), clock)
    assert timer.measure([warm]) == pytest.approx([1e-3])
    assert events == ["before", "evict", "call", "call"]


def test_mode_host_times_a_loop_that_ends_when_the_gpu_is_done():
    clock = FakeClock()
    pending = []

    def call():
        clock.spend(10e-6)()
        pending.append(30e-6)

    def wait():
        clock.spend(sum(pending))()
        pending.clear()

    timer = HostTimer(wait=wait, clock=clock)
    warm = timer.warm_up(call)
    assert warm.repeats == 50  # 2 ms of calls that take 40 us alone
    pending.append(5.0)  # what was queued before is waited for before the clock is read
    assert timer.measure([warm]) == pytest.approx([40e-6])


def test_garbage_collector_is_off_only_within_samples_and_on_again_after_a_failure():
    seen = []
    timer = CpuTimer(clock=FakeClock())
    timer.measure([Warm(lambda: seen.append(gc.isenabled()), 1, 0.0)])
    assert seen == [False]
    assert gc.isenabled()
    warm = Warm(lambda: 1 / 0, 1, 0.0)
    with pytest.raises(CallFailedError) as failed:
        timer.measure([warm])
    assert failed.value.warm is warm
    assert isinstance(failed.value.error, ZeroDivisionError)
    assert gc.isenabled()


def test_eviction_depends_on_device_cache_and_case(monkeypatch):
    monkeypatch.setattr(timers, "cache_bytes", lambda device: 1000)
    cases: list[Any] = [
        ("cpu", "cold", 1000, True),
        ("cpu", "cold", 1001, False),  # evicts itself
        ("cpu", "warm", 1, False),
        ("cuda:0", "cold", 10**12, True),  # costs next to nothing
        ("cuda:0", "warm", 1, False),
    ]
    for *case, evicts in cases:
        assert needs_eviction(*case) is evicts, case


def test_the_buffer_that_evicts_is_larger_than_the_cache_and_has_pages_of_its_own(monkeypatch):
    monkeypatch.setattr(timers, "cache_bytes", lambda device: 2**20)
    timer: Any = make_timer("cpu", evicts=True)
    buffer = timer.evict.__self__
    assert buffer.nbytes == 5 * 2**18
    assert buffer.all()  # zeros might all be one page of the kernel's
    timer = make_timer("cpu", evicts=False)
    assert timer.evict is None


def cuda_timer_that(outcomes, monkeypatch):
    """Return a timer whose batches have these outcomes, which need nothing of a GPU."""
    timer = CudaTimer.__new__(CudaTimer)
    timer.margin, timer.gaps, timer.agree = timers.QUEUE_MARGIN, 0, float
    monkeypatch.setattr(timer, "_run", lambda batch: outcomes.pop(0))
    return timer


def test_batch_is_retried_with_longer_waits_and_counted_if_none_suffices(monkeypatch):
    for outcomes, margin, gaps in (
        ([True], 1.5, 0),
        ([False, True], 3.0, 0),
        ([False, False, False, True], 12.0, 0),  # in time at the last
        ([False] * 4, 12.0, 1),
    ):
        timer = cuda_timer_that(outcomes, monkeypatch)
        timer._run_in_time([])
        assert (timer.margin, timer.gaps, outcomes) == (margin, gaps, [])
    timer = cuda_timer_that([False], monkeypatch)  # a call that waits is not taken again
    timer._run_in_time([Warm(int, 1, 0.0, waits=True)])
    assert (timer.margin, timer.gaps) == (timers.QUEUE_MARGIN, 0)


def test_a_call_that_waits_for_the_gpu_is_queued_alone():
    quick, waiting = Warm(int, 1, 0.0), Warm(int, 1, 0.0, waits=True)
    queue = [*[quick] * (timers.QUEUED + 1), waiting, waiting, quick]
    batches = list(timers._batches(queue))
    assert [len(batch) for batch in batches] == [timers.QUEUED, 1, 1, 1, 1]
    assert [warm for batch in batches for warm in batch] == queue


@pytest.fixture
def cuda_timer():
    return CudaTimer("cuda:0")


@pytest.mark.gpu
def test_events_measure_a_kernel_of_known_length(cuda_timer):
    cycles = int(cuda_timer.cycles_per_second * 1e-3)
    warm = cuda_timer.warm_up(lambda: torch.cuda._sleep(cycles))
    assert sorted(cuda_timer.measure([warm] * 9))[4] == pytest.approx(1e-3, rel=0.05)


@pytest.mark.gpu
def test_time_of_the_host_is_not_in_a_gpu_sample(cuda_timer):
    tensor = torch.zeros(1024, device="cuda:0")

    def call():
        until = time.perf_counter() + 300e-6
        while time.perf_counter() < until:
            pass
        tensor.add_(1)

    warm = cuda_timer.warm_up(call)
    assert warm.host_seconds >= 300e-6
    assert sorted(cuda_timer.measure([warm] * 31))[15] < 50e-6


@pytest.mark.gpu
def test_a_call_that_waits_for_the_gpu_leaves_the_samples_of_others_alone(cuda_timer):
    tensor = torch.zeros(1024, device="cuda:0")
    waiting = cuda_timer.warm_up(lambda: tensor.sum().item())
    quick = cuda_timer.warm_up(lambda: tensor.add_(1))
    assert (waiting.waits, quick.waits) == (True, False)
    samples = cuda_timer.measure([waiting, quick] * 31)
    assert sorted(samples[1::2])[15] < 20e-6
    assert cuda_timer.gaps == 0


@pytest.mark.gpu
def test_loop_of_calls_takes_the_longer_of_launch_and_work(cuda_timer):
    cycles = int(cuda_timer.cycles_per_second * 1e-3)
    timer = make_timer("cuda:0", True, "host")
    warm = timer.warm_up(lambda: torch.cuda._sleep(cycles))
    assert sorted(timer.measure([warm] * 9))[4] == pytest.approx(1e-3, rel=0.05)


@pytest.mark.gpu
def test_a_batch_that_the_gpu_caught_up_with_is_taken_again(cuda_timer):
    calls = []
    warm = Warm(lambda: calls.append(torch.cuda.synchronize()), 1, 0.0)
    assert len(cuda_timer.measure([warm])) == 1
    assert len(calls) == 1 + 3  # at margins of 1.5, 3, 6 and 12
    assert cuda_timer.gaps == 1
