import gc
import weakref
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from losscli.bench import runner as runners
from losscli.bench.limit import Limit
from losscli.bench.plan import plan
from losscli.bench.runner import Runner
from losscli.config.schema import Config, Exclude, LossChoice, Timing
from losscli.errors import BuildError
from losscli.implementations.timer import Warm
from losscli.truth.inputs import make_inputs
from tests.fake_bench import TIMING, FixedLimits, Seen, mean_square


def test_results_come_in_the_order_asked_for(bench):
    results = bench(sizes=((4,), (8,)))
    assert [(r.case.shape, r.pass_, r.implementation) for r in results] == [
        ((size,), pass_, name)
        for size in (4, 8)
        for pass_ in ("forward", "forward_backward")
        for name in ("reference", "functional")
    ]
    assert {r.status for r in results} == {"ok"}


def test_a_result_has_time_traffic_speedup_error_memory_and_the_stop_reason(bench):
    reference, functional = bench(passes=("forward",))
    assert functional.seconds.median == 1.0
    assert functional.speedup == {"reference": 2.0}
    assert reference.speedup == {"functional": 0.5}
    assert functional.seconds.interval == (1.0, 1.0)
    assert functional.ratios["reference"].verdict == "faster"
    assert reference.ratios["functional"].verdict == "slower"
    assert functional.bytes == 2 * 64 * 4
    assert functional.gbps == pytest.approx(512e-9)
    assert functional.error.value_ulp <= 2
    assert functional.error.grad_ulp is None
    assert functional.peak_extra_bytes >= 0
    assert functional.reason == "confidence: 13 samples, median within 0.00%"
    assert functional.host_seconds is None


def on_gpu(**changes):
    """Return the results of a small config, some of whose fields may be changed."""
    fields: dict[str, Any] = {"losses": (LossChoice("mse"),), "sizes": ((8, 8),), "timing": TIMING}
    tasks = plan(Config(**fields | changes), "cuda:0")
    return [result for task in tasks for result in Runner("cuda:0").run(task)]


@pytest.mark.gpu
def test_host_time_of_a_gpu_call_is_measured():
    for result in on_gpu(implementations=("reference",)):
        assert result.host_seconds is not None
        assert 0 < result.host_seconds < 0.01
        assert result.limit_gbps is not None
        assert result.limit_gbps > 0


def modes(*names):
    return replace(TIMING, mode=names)


def test_modes_are_run_one_after_the_other_each_with_its_timer(bench, timer):
    asked = []

    def make(device, evicts, mode):
        asked.append(mode)
        return timer

    timing = modes("host", "graph", "device")
    results = bench(timing=timing, implementations=("reference",), make_timer=make)
    assert [(r.mode, r.pass_, r.status) for r in results] == [
        (mode, pass_, "skipped" if mode == "graph" else "ok")
        for mode in ("host", "graph", "device")
        for pass_ in ("forward", "forward_backward")
    ]
    skipped = [r for r in results if r.mode == "graph"]
    assert {(r.code, r.reason) for r in skipped} == {("no_gpu", "a CUDA graph needs a GPU")}
    assert asked == ["host", "device"]


def test_recorded_cache_state_is_the_actual_one():
    for device, mode, cache in (
        ("cuda:0", "host", "warm"),  # nothing is evicted within a loop
        ("cuda:0", "device", "cold"),
        ("cuda:0", "graph", "cold"),
        ("cpu", "host", "cold"),  # as the device
    ):
        config = Config(losses=(LossChoice("mse"),), sizes=((8, 8),), timing=modes(mode))
        (task,) = plan(config, device)
        assert task.cache == cache
        # Nothing fits, so that no GPU is needed to see what is recorded.
        idle = Runner(device, free_bytes=lambda device: 0, conditions=Seen())
        assert {result.cache for result in idle.run(task)} == {cache}


@pytest.mark.gpu
def test_each_mode_runs_on_a_gpu():
    timing = Timing(min_time=0.0, max_time=1.0, mode=("device", "graph", "host"))
    results = on_gpu(implementations=("reference", "custom"), timing=timing)
    assert [r.status for r in results] == ["ok"] * 12
    assert [r.mode for r in results] == ["device"] * 4 + ["graph"] * 4 + ["host"] * 4
    assert all(r.error.value_ulp is not None for r in results)
    assert max(r.error.value_ulp or 0 for r in results) <= 2


@pytest.mark.gpu
def test_an_implementation_that_cannot_be_captured_fails_and_no_other(implementation):
    name = implementation(lambda x, y: mean_square(x, y) + 0 * float(x.sum()))
    timing = Timing(min_time=0.0, max_time=1.0, mode=("graph",))
    results = on_gpu(passes=("forward",), implementations=(name, "reference"), timing=timing)
    assert [r.status for r in results] == ["failed", "ok"]


def test_tables_run_one_after_the_other_with_their_own_timing(bench):
    common = Config(losses=(LossChoice("mse"),), passes=("forward",), timing=TIMING)
    results = bench(
        tables=(
            replace(common, title="small", sizes=((2,),), implementations=("reference",)),
            replace(common, title="large", sizes=((4,),), implementations=("functional",)),
        )
    )
    assert [(r.table, r.case.shape, r.implementation) for r in results] == [
        ("small", (2,), "reference"),
        ("large", (4,), "functional"),
    ]


def test_results_have_the_conditions_and_only_throttled_samples_are_none(bench):
    seen = Seen(others=0.05)
    (result,) = bench(conditions=seen, implementations=("reference",), passes=("forward",))
    assert result.conditions == {"others": 0.05}
    timing = Timing(min_time=0.0, max_time=0.01)
    seen = Seen(slowed=True, celsius=[99, 99])
    results = bench(conditions=seen, passes=("forward",), timing=timing)
    assert {r.status for r in results} == {"skipped"}
    assert results[0].reason.startswith("every sample was taken while throttled; ")
    assert results[0].conditions == {"celsius": [99, 99]}


def test_batches_with_host_gaps_are_reported(bench, timer, monkeypatch):
    measure = timer.measure

    def with_gaps(queue):
        timer.gaps += 1
        return measure(queue)

    monkeypatch.setattr(timer, "measure", with_gaps)
    timer.gaps = 7  # of what was timed before
    limits = FixedLimits(Limit(reason="no nvcc"))
    (result,) = bench(implementations=("reference",), passes=("forward",), limits=limits)
    gaps = len(timer.batches)
    assert result.conditions == {"host_gaps": gaps}
    assert result.reason.endswith(f"; batches with host gaps: {gaps}; limit not measured: no nvcc")


def test_a_call_that_waits_for_the_gpu_is_reported(bench, timer, monkeypatch):
    monkeypatch.setattr(timer, "warm_up", lambda call: Warm(call, 1, 0.0, waits=True))
    (result,) = bench(implementations=("reference",), passes=("forward",))
    assert "each call waits for the GPU: time of the host is in it" in result.reason


def test_busy_machine_is_noted_once(bench):
    notes = []
    bench(conditions=Seen(others=0.05), notify=notes.append)
    assert notes == []
    bench(conditions=Seen(others=0.5), notify=notes.append)
    assert notes == [runners.BUSY_NOTE]


def test_out_of_memory_skips_the_implementation(bench, implementation):
    for error in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        MemoryError("none left"),
    ):
        implementations = (implementation(Mock(side_effect=error)), "reference")
        result, reference = bench(implementations=implementations, passes=("forward",))
        assert (result.status, result.reason) == ("skipped", f"out of memory: {error}")
        assert reference.status == "ok"


def test_case_without_memory_for_its_inputs_is_skipped(bench, monkeypatch):
    monkeypatch.setattr(runners, "make_inputs", Mock(side_effect=MemoryError("none left")))
    results = bench()
    assert len(results) == 4
    assert {(r.status, r.reason) for r in results} == {("skipped", "out of memory: none left")}
    assert {r.code for r in results} == {"out_of_memory"}
    monkeypatch.setattr(runners, "make_inputs", lambda case: pytest.fail("allocated"))
    results = bench(free=2**20)
    assert [r.status for r in results] == ["skipped"] * 4
    assert results[0].reason == "needs 512.0 MiB of memory, 1.0 MiB are free"


def test_the_operands_of_a_case_are_free_before_the_next_begins(bench, monkeypatch, implementation):
    operands, alive = [], []

    def make(case, reference, *, labels):
        alive.append(sum(operand() is not None for operand in operands))
        made = make_inputs(case)
        operands.extend(map(weakref.ref, made.values()))
        return made

    def broken(input, target):
        if len(operands) > 2:
            raise ValueError
        return mean_square(input, target)

    monkeypatch.setattr(runners, "make_inputs", make)
    gc.disable()
    try:
        bench(
            sizes=((4,), (8,), (16,)),
            implementations=("reference", "functional", implementation(broken)),
        )
    finally:
        gc.enable()
    assert alive == [0, 0, 0]


def test_a_failed_build_ends_the_run(bench, implementation):
    with pytest.raises(BuildError):
        bench(implementations=(implementation(Mock(side_effect=BuildError("no kernels"))),))


def test_excluded_implementations_do_not_run(bench):
    rule = Exclude(implementation="functional", pass_="forward")
    results = bench(exclude=(rule,))
    assert [(r.pass_, r.implementation) for r in results] == [
        ("forward", "reference"),
        ("forward_backward", "reference"),
        ("forward_backward", "functional"),
    ]
