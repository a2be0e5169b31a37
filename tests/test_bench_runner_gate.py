import itertools
from unittest.mock import Mock

import pytest
import torch

from losscli.bench.limit import Limit
from losscli.bench.sampling import Contender
from losscli.config.schema import CaseTolerance, LossChoice
from losscli.implementations.timer import CpuTimer
from losscli.machine import memory
from tests.fake_bench import FixedLimits, Seen, mean_square


def test_a_wrong_implementation_is_never_timed(bench, timer, implementation):
    wrong = implementation(lambda x, y: mean_square(x, y) * 1.001)
    reference, result = bench(implementations=("reference", wrong), passes=("forward",))
    assert (result.status, result.seconds, result.gbps) == ("failed", None, None)
    assert "ulp" in result.reason
    assert reference.status == "ok"
    assert reference.speedup == {}
    assert {name for batch in timer.batches for name in batch} == {"reference"}


def test_a_wrong_gradient_fails_the_backward_pass_alone(bench, implementation):
    wrong = implementation(lambda x, y: mean_square(x, y) + 0 * x.sum() + (x - x.detach()).sum())
    forward, backward = bench(implementations=(wrong,))
    assert forward.status == "ok"
    assert backward.status == "failed"
    assert backward.reason.startswith("gradient: ")


def remembering(key):
    """Return an implementation that caches its result by a key of its prediction."""
    known = {}

    def remembered(input, target):
        if key(input) not in known:
            known[key(input)] = mean_square(input, target)
        return known[key(input)]

    return remembered


class RememberedGradient(torch.autograd.Function):
    """A right loss with a cached gradient."""

    gradient = None

    @staticmethod
    def forward(ctx, input, target):
        if RememberedGradient.gradient is None:
            RememberedGradient.gradient = 2 * (input - target) / input.numel()
        return mean_square(input, target)

    @staticmethod
    def backward(ctx, grad_output):
        return RememberedGradient.gradient * grad_output, None


def lazy():
    """Return an implementation that turns wrong while it is timed."""
    calls = itertools.count()
    return lambda x, y: mean_square(x, y) if next(calls) < 8 else torch.zeros(())


def test_implementation_that_is_cached_or_turns_wrong_while_timed_fails(bench, implementation):
    RememberedGradient.gradient = None
    for function, pass_, what in (
        (remembering(torch.Tensor.data_ptr), "forward", "loss: "),
        (lazy(), "forward", "loss: "),
        (RememberedGradient.apply, "forward_backward", "gradient: "),
    ):
        (result,) = bench(implementations=(implementation(function),), passes=(pass_,))
        assert (result.status, result.seconds) == ("failed", None)
        assert result.reason.startswith(f"correct before timing, wrong while timed: {what}")


def test_result_cached_by_version_is_computed_for_each_sample(bench, implementation):
    computed = []
    remembered = remembering(lambda tensor: (tensor.data_ptr(), tensor._version))

    def counted(input, target):
        before = input._version
        computed.append(before)
        return remembered(input, target)

    (result,) = bench(
        implementations=(implementation(counted),),
        passes=("forward",),
        make_timer=lambda device, evicts, mode: CpuTimer(clock=ticking(), evict=lambda: None),
    )
    assert result.status == "ok"
    samples = computed[-len(result.seconds.samples) :]
    assert len(set(samples)) == len(samples) >= 10


def ticking():
    """Return a clock of which each reading is a millisecond later."""
    readings = itertools.count(step=10**6)
    return lambda: next(readings)


def test_an_exception_fails_its_implementation_and_no_other(bench, implementation):
    for good_calls in (0, 1, 2, 5):  # at the gate, the warm-up, the memory, the samples
        calls = []

        def broken(input, target, calls=calls, good_calls=good_calls):
            calls.append(1)
            if len(calls) > good_calls:
                raise ValueError("first line\nsecond line")
            return mean_square(input, target)

        implementations = (implementation(broken), "reference")
        result, reference = bench(implementations=implementations, passes=("forward",))
        assert (result.status, result.code) == ("failed", "raised"), good_calls
        assert result.reason == "raised ValueError: first line"
        assert (reference.status, reference.speedup) == ("ok", {})


def test_a_tolerance_given_by_name_loosens_the_gate(bench, implementation):
    wrong = implementation(lambda x, y: mean_square(x, y) * (1 + 2**-15))
    arguments = {"implementations": (wrong,), "passes": ("forward",)}
    (strict,) = bench(**arguments)
    (loose,) = bench(**arguments, tolerances=(CaseTolerance("mse 8x8 float32 mean", 1024.0),))
    assert (strict.status, loose.status) == ("failed", "ok")


def test_every_loss_and_reduction_gets_a_result(bench):
    results = bench(
        losses=tuple(map(LossChoice, ("smooth_l1", "mse", "hinge"))),
        reductions=("none", "mean", "sum"),
        implementations=("reference",),
    )
    assert [r.status for r in results] == ["ok"] * 3 * 3 * 2
    assert all(r.error.grad_ulp <= 4 for r in results if r.pass_ == "forward_backward")


def functional(bench, limit=None, **changes):
    """Return the only result, of a limit that is found once or changes when it is repeated."""
    limits = limit if isinstance(limit, FixedLimits) else FixedLimits(limit or Limit())
    given = {"passes": ("forward",), "implementations": ("functional",), "limits": limits}
    (result,) = bench(**given | changes)
    return result


def test_result_has_the_memory_limit_beside_its_traffic_or_why_there_is_none(bench):
    result = functional(bench, Limit(seconds=0.5))
    assert result.limit_gbps == pytest.approx(1024e-9)
    assert (result.limit_share, result.impossible) == (pytest.approx(0.5), False)
    result = functional(bench, Limit(reason="out of memory"))
    assert (result.limit_gbps, result.impossible) == (None, False)
    assert result.reason.endswith("; limit not measured: out of memory")
    assert (result.stop, result.no_limit) == ("confidence", "out of memory")


def test_the_probe_reads_the_operands_and_the_incoming_gradient(bench):
    limits = FixedLimits(Limit())
    bench(implementations=("reference",), reductions=("none",), limits=limits)
    square = (8, 8)
    assert limits.asked == [("forward", [square] * 2), ("forward_backward", [square] * 3)]


def test_time_faster_than_the_memory_is_impossible_unless_the_machine_is_busy(bench):
    limits = FixedLimits(Limit(seconds=1.1))
    reference, result = bench(passes=("forward",), limits=limits)
    assert (reference.impossible, result.impossible) == (False, True)
    assert result.reason.startswith("IMPOSSIBLE: 110% of the measured limit; ")
    result = functional(bench, Limit(seconds=1.1), conditions=Seen(others=0.5), notify=len)
    assert not result.impossible
    assert result.reason.startswith("confidence: ")


def test_before_a_time_is_called_impossible_the_limit_is_measured_again(bench):
    limits = FixedLimits(Limit(seconds=1.1), second=Limit(seconds=0.9))
    reference, functional = bench(passes=("forward",), limits=limits)
    assert len(limits.asked) == 2
    assert not functional.impossible
    assert functional.reason.startswith("confidence: ")
    assert functional.reason.endswith("; limit measured twice")
    assert functional.limit_share == pytest.approx(0.9)
    assert reference.limit_share == pytest.approx(0.45)


@pytest.mark.usefixtures("_no_cache")
def test_no_limit_is_measured_of_a_task_without_one(bench):
    mover = Contender("", lambda: None, awaited=False)
    limits = FixedLimits(Limit(seconds=0.5), mover=mover)
    results = bench(implementations=("reference",), limits=limits, limited=False)
    assert [result.limit_gbps for result in results] == [None, None]
    assert (limits.asked, mover.samples) == ([], [])


@pytest.fixture
def _no_cache(monkeypatch):
    monkeypatch.setattr(memory, "cache_bytes", lambda device: 0)


def test_probe_is_not_in_the_rounds_of_a_case_that_fits_the_cache(bench):
    mover = Contender("", lambda: None, awaited=False)
    result = functional(bench, FixedLimits(Limit(seconds=0.5), mover=mover))
    assert (mover.samples, result.limit_share) == ([], pytest.approx(0.5))


@pytest.mark.usefixtures("_no_cache")
def test_on_a_cpu_the_probe_is_sampled_in_the_same_rounds(bench):
    moved = []
    mover = Contender("", lambda: moved.append(None), awaited=False)
    limits = FixedLimits(Limit(seconds=9.0), mover=mover)
    reference, functional = bench(passes=("forward",), limits=limits)
    assert len(mover.samples) == len(functional.seconds.samples)
    assert len(moved) >= len(mover.samples)
    assert functional.limit_gbps == pytest.approx(functional.bytes / mover.samples[0] / 1e9)
    assert reference.limit_gbps == functional.limit_gbps
    assert not functional.ratios.keys() - {"reference"}


@pytest.mark.usefixtures("_no_cache")
def test_slower_second_limit_does_not_replace_that_of_the_rounds(bench):
    mover = Contender("", lambda: None, awaited=False)
    limits = FixedLimits(Limit(seconds=9.0), second=Limit(seconds=5.0), mover=mover)
    _, functional = bench(passes=("forward",), limits=limits)
    assert functional.limit_gbps == pytest.approx(functional.bytes / mover.samples[0] / 1e9)


@pytest.mark.usefixtures("_no_cache")
def test_probe_that_fails_midway_keeps_the_earlier_limit(bench):
    for good in (0, 5):
        answers = itertools.chain([None] * good, [ZeroDivisionError()])
        mover = Contender("", Mock(side_effect=answers), awaited=False)
        result = functional(bench, FixedLimits(Limit(seconds=0.5), mover=mover))
        assert bool(mover.samples) == bool(good)
        assert (result.status, result.limit_share) == ("ok", pytest.approx(0.5))


def test_no_memory_is_measured_where_another_process_has(bench):
    result = functional(bench, peaks=False)
    assert (result.status, result.peak_extra_bytes) == ("ok", None)
