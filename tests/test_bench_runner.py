"""The bench runner: wrong implementations are not timed, cases that do not fit are skipped."""

import gc
import itertools
import weakref
from dataclasses import replace

import pytest
import torch
from fake_time import ClockTimer, FakeClock

from losscli.bench import runner as runners
from losscli.bench.limit import Limit
from losscli.bench.plan import plan
from losscli.bench.runner import Runner
from losscli.bench.sampling import Contender
from losscli.bench.timer import CpuTimer
from losscli.config.schema import Config, Exclude, LossChoice, Timing, Tolerance
from losscli.errors import BuildError
from losscli.implementations import IMPLEMENTATIONS, Implementation

TIMING = Timing(min_time=0.0, max_time=60.0)


class StepTimer(ClockTimer):
    """Takes 1 s a call; 2 s for the reference."""

    def measure(self, queue):
        super().measure(queue)
        return [2.0 if warm.call.name == "reference" else 1.0 for warm in queue]


@pytest.fixture
def timer():
    return StepTimer(FakeClock())


class FixedLimits:
    """Finds one limit for all, or another the second time; stores its arguments."""

    def __init__(self, limit, second=None, mover=None):
        self.limit, self.second, self.mover = limit, second or limit, mover
        self.asked = []

    def find(self, case, pass_, timer, reads, again=False):
        self.asked.append((pass_, [tuple(tensor.shape) for tensor in reads]))
        return self.second if again else self.limit

    def contender(self, case, pass_, timer, reads):
        return self.mover


@pytest.fixture
def bench(timer):
    """Run a small config, every contender's samples constant."""

    def run(
        free=2**40,
        limits=None,
        device="cpu",
        conditions=None,
        make_timer=None,
        notify=print,
        **changes,
    ):
        fields = {
            "losses": (LossChoice("mse"),),
            "sizes": ((8, 8),),
            "implementations": ("reference", "functional"),
            "timing": TIMING,
        }
        config = Config(**(fields | changes))
        runner = Runner(
            device,
            free_bytes=lambda device: free,
            make_timer=make_timer or (lambda device, evicts, mode: timer),
            limits=limits or FixedLimits(Limit()),
            conditions=conditions or Seen(),
            notify=notify,
        )
        return [result for task in plan(config, device) for result in runner.run(task)]

    return run


@pytest.fixture
def implementation(monkeypatch):
    """Register an implementation of the given function, or of an exception when bound."""

    def register(function, name="theirs"):
        entry = Implementation(name, "", lambda case: function)
        monkeypatch.setitem(IMPLEMENTATIONS, name, entry)
        return name

    return register


def mean_square(input, target):
    return ((input - target) ** 2).mean()


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


def test_result_has_the_memory_limit_beside_its_traffic(bench):
    limits = FixedLimits(Limit(seconds=0.5))
    (result,) = bench(passes=("forward",), implementations=("functional",), limits=limits)
    assert result.limit_gbps == pytest.approx(1024e-9)
    assert result.limit_share == pytest.approx(0.5)
    assert not result.impossible


def test_the_probe_reads_the_operands_and_the_incoming_gradient(bench):
    limits = FixedLimits(Limit())
    bench(implementations=("reference",), reductions=("none",), limits=limits)
    square = (8, 8)
    assert limits.asked == [
        ("forward", [square] * 2),
        ("forward_backward", [square] * 3),
    ]


def test_time_faster_than_the_memory_is_impossible(bench):
    limits = FixedLimits(Limit(seconds=1.1))
    reference, functional = bench(passes=("forward",), limits=limits)
    assert not reference.impossible
    assert functional.impossible
    assert functional.reason.startswith("IMPOSSIBLE: 110% of the measured memory limit; ")


def test_before_a_time_is_called_impossible_the_limit_is_measured_again(bench):
    limits = FixedLimits(Limit(seconds=1.1), second=Limit(seconds=0.9))
    reference, functional = bench(passes=("forward",), limits=limits)
    assert len(limits.asked) == 2
    assert not functional.impossible
    assert functional.reason.startswith("confidence: ")
    assert functional.reason.endswith("; memory limit measured twice")
    assert functional.limit_share == pytest.approx(0.9)
    assert reference.limit_share == pytest.approx(0.45)


@pytest.fixture
def _no_cache(monkeypatch):
    monkeypatch.setattr(runners.memory, "cache_bytes", lambda device: 0)


def test_probe_is_not_in_the_rounds_of_a_case_that_fits_the_cache(bench):
    mover = Contender("", lambda: None, awaited=False)
    limits = FixedLimits(Limit(seconds=0.5), mover=mover)
    (result,) = bench(passes=("forward",), implementations=("functional",), limits=limits)
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
    assert mover.warm is None
    assert not functional.ratios.keys() - {"reference"}


@pytest.mark.usefixtures("_no_cache")
def test_probe_that_fails_keeps_the_earlier_limit(bench):
    mover = Contender("", lambda: 1 / 0, awaited=False)
    limits = FixedLimits(Limit(seconds=0.5), mover=mover)
    (result,) = bench(passes=("forward",), implementations=("functional",), limits=limits)
    assert (result.status, result.limit_share) == ("ok", pytest.approx(0.5))


@pytest.mark.usefixtures("_no_cache")
def test_slower_second_limit_does_not_replace_that_of_the_rounds(bench):
    mover = Contender("", lambda: None, awaited=False)
    limits = FixedLimits(Limit(seconds=9.0), second=Limit(seconds=5.0), mover=mover)
    _, functional = bench(passes=("forward",), limits=limits)
    assert functional.limit_gbps == pytest.approx(functional.bytes / mover.samples[0] / 1e9)


@pytest.mark.usefixtures("_no_cache")
def test_probe_that_fails_midway_keeps_the_earlier_limit(bench):
    calls = itertools.count()
    mover = Contender("", lambda: 1 / (5 - next(calls)), awaited=False)
    limits = FixedLimits(Limit(seconds=0.5), mover=mover)
    (result,) = bench(passes=("forward",), implementations=("functional",), limits=limits)
    assert mover.samples
    assert result.limit_share == pytest.approx(0.5)


def test_reason_has_no_impossible_on_a_busy_machine(bench):
    limits = FixedLimits(Limit(seconds=1.1))
    busy = Seen(others=0.5)
    _, functional = bench(passes=("forward",), limits=limits, conditions=busy, notify=len)
    assert not functional.impossible
    assert functional.reason.startswith("confidence: ")


def test_unknown_limit_has_a_reason(bench):
    limits = FixedLimits(Limit(reason="out of memory"))
    (result,) = bench(passes=("forward",), implementations=("reference",), limits=limits)
    assert (result.limit_gbps, result.impossible) == (None, False)
    assert result.reason.endswith("; memory limit not measured: out of memory")
    assert (result.stop, result.no_limit) == ("confidence", "out of memory")


def test_host_time_is_absent_on_a_cpu(bench):
    assert {result.host_seconds for result in bench()} == {None}


@pytest.mark.gpu
def test_host_time_of_a_gpu_call_is_measured():
    config = Config(
        losses=(LossChoice("mse"),), sizes=((8, 8),), implementations=("reference",), timing=TIMING
    )
    (task,) = plan(config, "cuda:0")
    for result in Runner("cuda:0").run(task):
        assert 0 < result.host_seconds < 0.01
        assert result.limit_gbps > 0


def modes(*names):
    return replace(TIMING, mode=names)


def test_modes_are_run_one_after_the_other(bench):
    results = bench(timing=modes("host", "device"), implementations=("reference",))
    assert [(r.mode, r.pass_) for r in results] == [
        ("host", "forward"),
        ("host", "forward_backward"),
        ("device", "forward"),
        ("device", "forward_backward"),
    ]
    assert {r.status for r in results} == {"ok"}


def test_mode_host_has_its_own_timer_and_graph_that_of_the_device(bench, timer):
    asked = []

    def make(device, evicts, mode):
        asked.append(mode)
        return timer

    bench(timing=modes("device", "graph", "host"), make_timer=make)
    assert asked == ["device", "host"]


@pytest.mark.parametrize(
    ("device", "mode", "cache"),
    [
        ("cuda:0", "host", "warm"),  # nothing is evicted within a loop
        ("cuda:0", "device", "cold"),
        ("cuda:0", "graph", "cold"),
        ("cpu", "host", "cold"),  # as the device
    ],
)
def test_recorded_cache_state_is_the_actual_one(device, mode, cache):
    config = Config(losses=(LossChoice("mse"),), sizes=((8, 8),), timing=modes(mode))
    (task,) = plan(config, device)
    assert task.cache == cache
    # Nothing fits, so that no GPU is needed to see what is recorded.
    idle = Runner(device, free_bytes=lambda device: 0, conditions=Seen())
    assert {result.cache for result in idle.run(task)} == {cache}


def test_a_graph_is_skipped_without_a_gpu(bench):
    results = bench(timing=modes("graph"))
    assert {(r.status, r.code) for r in results} == {("skipped", "no_gpu")}
    assert {r.reason for r in results} == {"a CUDA graph needs a GPU"}


@pytest.mark.gpu
def test_each_mode_runs_on_a_gpu():
    config = Config(
        losses=(LossChoice("mse"),),
        sizes=((8, 8),),
        implementations=("reference", "custom"),
        timing=Timing(min_time=0.0, max_time=1.0, mode=("device", "graph", "host")),
    )
    results = [r for task in plan(config, "cuda:0") for r in Runner("cuda:0").run(task)]
    assert [r.status for r in results] == ["ok"] * 12
    assert [r.mode for r in results] == ["device"] * 4 + ["graph"] * 4 + ["host"] * 4
    assert all(r.error.value_ulp <= 2 for r in results)


@pytest.mark.gpu
def test_an_implementation_that_cannot_be_captured_fails_and_no_other(implementation):
    name = implementation(lambda x, y: mean_square(x, y) + 0 * float(x.sum()))
    config = Config(
        losses=(LossChoice("mse"),),
        sizes=((8, 8),),
        passes=("forward",),
        implementations=(name, "reference"),
        timing=Timing(min_time=0.0, max_time=1.0, mode=("graph",)),
    )
    (task,) = plan(config, "cuda:0")
    theirs, reference = Runner("cuda:0").run(task)
    assert (theirs.status, reference.status) == ("failed", "ok")


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


def test_forward_backward_result_has_the_error_of_the_gradient(bench):
    (result,) = bench(passes=("forward_backward",), implementations=("reference",))
    assert result.error.grad_ulp <= 4


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


def test_result_cached_by_address_fails(bench, implementation):
    (result,) = bench(
        implementations=(implementation(remembering(torch.Tensor.data_ptr)),), passes=("forward",)
    )
    assert (result.status, result.seconds) == ("failed", None)
    assert result.reason.startswith("correct before timing, wrong while timed: loss: ")


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


def test_cached_gradient_fails(bench, implementation):
    RememberedGradient.gradient = None
    (result,) = bench(
        implementations=(implementation(RememberedGradient.apply),), passes=("forward_backward",)
    )
    assert (result.status, result.seconds) == ("failed", None)
    assert result.reason.startswith("correct before timing, wrong while timed: gradient: ")


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


def test_each_pass_is_judged_on_its_own_contents(bench):
    results = bench(implementations=("reference",), losses=(LossChoice("smooth_l1"),))
    assert [r.status for r in results] == ["ok", "ok"]


class Seen:
    """Conditions that stay as they are."""

    def __init__(self, slowed=False, **record):
        self._slowed, self._record = slowed, record

    def begin(self):
        pass

    def slowed(self):
        return self._slowed

    def record(self):
        return self._record


def test_implementation_with_only_throttled_samples_is_skipped(bench):
    timing = Timing(min_time=0.0, max_time=0.01)
    seen = Seen(slowed=True, celsius=[99, 99])
    results = bench(conditions=seen, passes=("forward",), timing=timing)
    assert {r.status for r in results} == {"skipped"}
    assert results[0].reason.startswith("every sample was taken while throttled, ")
    assert results[0].conditions == {"celsius": [99, 99]}


def test_results_have_the_conditions(bench):
    seen = Seen(others=0.05)
    (result,) = bench(conditions=seen, implementations=("reference",), passes=("forward",))
    assert result.conditions == {"others": 0.05}


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
    assert result.reason.endswith(
        f"; batches with host gaps: {gaps}; memory limit not measured: no nvcc"
    )


def test_busy_machine_is_noted_once(bench):
    notes = []
    bench(conditions=Seen(others=0.05), notify=notes.append)
    assert notes == []
    bench(conditions=Seen(others=0.5), notify=notes.append)
    assert notes == [runners.BUSY_NOTE]


def test_implementation_that_turns_wrong_while_timed_fails(bench, implementation):
    calls = []

    def lazy(input, target):
        calls.append(1)
        return mean_square(input, target) if len(calls) < 9 else torch.zeros(())

    (result,) = bench(implementations=(implementation(lazy),), passes=("forward",))
    assert (result.status, result.seconds) == ("failed", None)
    assert result.reason.startswith("correct before timing, wrong while timed: ")


@pytest.mark.parametrize("good_calls", [0, 1, 2, 5], ids=["gate", "warm-up", "memory", "samples"])
def test_an_exception_fails_its_implementation_and_no_other(bench, implementation, good_calls):
    calls = []

    def broken(input, target):
        calls.append(1)
        if len(calls) > good_calls:
            raise ValueError("first line\nsecond line")
        return mean_square(input, target)

    result, reference = bench(
        implementations=(implementation(broken), "reference"), passes=("forward",)
    )
    assert (result.status, result.code) == ("failed", "raised")
    assert result.reason == "raised ValueError: first line"
    assert (reference.status, reference.speedup) == ("ok", {})


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        MemoryError("none left"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_out_of_memory_skips_the_implementation(bench, implementation, error):
    def greedy(input, target):
        raise error

    result, reference = bench(
        implementations=(implementation(greedy), "reference"), passes=("forward",)
    )
    assert result.status == "skipped"
    assert result.reason == f"out of memory: {error}"
    assert reference.status == "ok"


def test_out_of_memory_while_inputs_are_made_skips_the_case(bench, monkeypatch):
    def fail(case):
        raise MemoryError("none left")

    monkeypatch.setattr(runners, "make_inputs", fail)
    results = bench()
    assert len(results) == 4
    assert {(r.status, r.reason) for r in results} == {("skipped", "out of memory: none left")}
    assert {r.code for r in results} == {"out_of_memory"}


def test_a_case_that_does_not_fit_is_skipped_before_anything_is_allocated(bench, monkeypatch):
    monkeypatch.setattr(runners, "make_inputs", lambda case: pytest.fail("allocated"))
    results = bench(free=2**20)
    assert [r.status for r in results] == ["skipped"] * 4
    assert results[0].reason == "needs 512.0 MiB of memory, 1.0 MiB are free"


def test_the_operands_of_a_case_are_free_before_the_next_begins(bench, monkeypatch, implementation):
    make_inputs, operands, alive = runners.make_inputs, [], []

    def make(case):
        alive.append(sum(operand() is not None for operand in operands))
        made = make_inputs(case)
        operands.extend(map(weakref.ref, made))
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


def test_implementation_that_does_not_apply_is_skipped_with_its_reason(bench):
    (result,) = bench(
        losses=(LossChoice("hinge"),), implementations=("functional",), passes=("forward",)
    )
    assert (result.status, result.reason) == (
        "skipped",
        "torch.nn.functional has no hinge of its own",
    )


def test_a_failed_build_ends_the_run(bench, implementation):
    def unbuilt(input, target):
        raise BuildError("no kernels")

    with pytest.raises(BuildError):
        bench(implementations=(implementation(unbuilt),))


def test_excluded_implementations_do_not_run(bench):
    rule = Exclude(implementation="functional", pass_="forward")
    results = bench(exclude=(rule,))
    assert [(r.pass_, r.implementation) for r in results] == [
        ("forward", "reference"),
        ("forward_backward", "reference"),
        ("forward_backward", "functional"),
    ]


def test_a_tolerance_given_by_name_loosens_the_gate(bench, implementation):
    wrong = implementation(lambda x, y: mean_square(x, y) * (1 + 2**-15))
    arguments = {"implementations": (wrong,), "passes": ("forward",)}
    (strict,) = bench(**arguments)
    (loose,) = bench(**arguments, tolerances=(Tolerance("mse 8x8 float32 mean", 1024.0),))
    assert (strict.status, loose.status) == ("failed", "ok")


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("loss", ["smooth_l1", "mse", "hinge"])
def test_every_loss_and_reduction_gets_a_result(bench, loss, reduction):
    results = bench(
        losses=(LossChoice(loss),), reductions=(reduction,), implementations=("reference",)
    )
    assert [r.status for r in results] == ["ok", "ok"]
