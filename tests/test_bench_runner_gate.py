"""The runner and the gate: what is wrong, or turns wrong while it is timed, has no time."""

import itertools

import torch

from losscli.config.schema import LossChoice, Tolerance
from losscli.implementations.timer import CpuTimer
from tests.fake_bench import mean_square


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
    (loose,) = bench(**arguments, tolerances=(Tolerance("mse 8x8 float32 mean", 1024.0),))
    assert (strict.status, loose.status) == ("failed", "ok")


def test_every_loss_and_reduction_gets_a_result(bench):
    results = bench(
        losses=tuple(map(LossChoice, ("smooth_l1", "mse", "hinge"))),
        reductions=("none", "mean", "sum"),
        implementations=("reference",),
    )
    assert [r.status for r in results] == ["ok"] * 3 * 3 * 2
    assert all(r.error.grad_ulp <= 4 for r in results if r.pass_ == "forward_backward")
