"""The memory limit of a pass: the fastest way to move its bytes, measured once."""

import itertools
from functools import partial
from typing import Any

import pytest
import torch

from losscli.bench import limit as limits_module
from losscli.bench.limit import RANKED, BandwidthProbe, Limits, Mix, mixes
from losscli.bench.sampling import interleave
from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.config.schema import Timing
from losscli.errors import UnfitError
from losscli.losses import REDUCTIONS
from tests.fake_time import ClockTimer, FakeClock
from tests.handmade import case_of

Asked = tuple[Case, PassName, Any, Any]


def case(loss="mse", reduction="mean", shape=(8, 8), **changes):
    return case_of(loss, shape, reduction=reduction, **changes)


def operands(case):
    dtype = getattr(torch, case.dtype)
    return [torch.ones(case.shape, dtype=dtype), torch.ones(case.target_shape, dtype=dtype)]


class FakeMemory:
    """A probe whose variants take 4, 2 and 3 s by a fake clock."""

    def __init__(self):
        self.clock = FakeClock()
        self.timer = ClockTimer(self.clock)
        self.calls = [self.clock.spend(each) for each in (4.0, 2.0, 3.0)]
        self.moved = []
        self.loads = 0
        self.failure = None

    def load(self, device):
        self.loads += 1
        return BandwidthProbe(self.move, len(self.calls))

    def move(self, reads, writes, variant):
        if self.failure:
            raise self.failure
        self.moved.append(([tensor.nbytes for tensor in reads], [t.nbytes for t in writes]))
        self.calls[variant]()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Sample until the median is known: fake calls take no real time."""
    monkeypatch.setattr(Limits.find, "__defaults__", (False, Timing(0.0, 60.0)))


@pytest.fixture
def memory():
    return FakeMemory()


def test_memory_launches_of_each_pass():
    row, single = case("hinge"), case("hinge", shape=(8,))
    picked = case("nll", target_shape=(8,))
    for asked, forward, backward in (
        (case(), [Mix(2, 0)], [Mix(2, 1)]),
        (row, [Mix(1, 0)], [Mix(1, 1)]),  # the row stays in the cache
        (single, [Mix(2, 0)], [Mix(2, 1)]),  # no row, but all of it
        (case(reduction="sum"), [Mix(2, 0)], [Mix(2, 1)]),
        (case(reduction="none"), [Mix(2, 1)], [Mix(2, 1), Mix(3, 1)]),
        (case("hinge", "none"), [Mix(1, 1)], [Mix(1, 1), Mix(2, 1)]),
        (case("weighted_mse"), [Mix(3, 0)], [Mix(3, 1)]),
        (case("weighted_mse", "none"), [Mix(3, 1)], [Mix(3, 1), Mix(4, 1)]),
        (picked, [Mix(1, 0)], [Mix(0, 1)]),  # of the picked elements
        (case("nll", "none", target_shape=(8,)), [Mix(1, 0)], [Mix(0, 1)]),
    ):
        assert mixes(asked, "forward") == tuple(forward), asked.name
        assert mixes(asked, "forward_backward") == tuple(backward), asked.name


def test_probe_moves_the_bytes_of_the_byte_model():
    passes: tuple[PassName, ...] = ("forward", "forward_backward")
    for loss, reduction in itertools.product(("smooth_l1", "mse", "hinge"), REDUCTIONS):
        asked = case(loss, reduction, shape=(64, 4096))
        for pass_ in passes:
            arrays = sum(mix.reads + mix.writes for mix in mixes(asked, pass_))
            moved = arrays * asked.elements * asked.item_bytes
            assert moved == pytest.approx(asked.floor_bytes(pass_), rel=1 / 16)  # but for the row


def test_the_fastest_variant_is_the_limit(memory):
    found = Limits("cpu", memory.load).find(case(), "forward", memory.timer, operands(case()))
    assert (found.seconds, found.reason) == (2.0, "")


def test_probe_moves_whole_arrays_but_no_broadcast_rows(memory):
    asked = case("hinge", "none")
    reads = [*operands(asked), torch.ones(asked.shape)]
    Limits("cpu", memory.load).find(asked, "forward_backward", memory.timer, reads)
    assert memory.moved[:2] == [([256], [256]), ([256, 256], [256])]


def test_probe_reads_as_many_bytes_as_picked_elements_take(memory):
    asked = case("nll", "none", shape=(10, 1000), target_shape=(10,))
    reads = [torch.ones(asked.shape), torch.zeros(10, dtype=torch.int64)]
    limits = Limits("cpu", memory.load)
    limits.find(asked, "forward", memory.timer, reads)
    assert memory.moved[0] == ([10 * (32 + 8 + 4)], [])
    memory.moved.clear()
    limits.find(asked, "forward_backward", memory.timer, reads)
    assert memory.moved[0] == ([], [40_000])


def test_limit_of_equal_bytes_is_measured_once_for_all_losses(memory):
    limits = Limits("cpu", memory.load)
    asked = [case(), case("smooth_l1", "sum"), case(shape=(4, 8), dtype="float64")]
    found = [limits.find(c, "forward", memory.timer, operands(c)) for c in asked]
    assert [limit.seconds for limit in found] == [2.0] * 3
    before = len(memory.moved)
    limits.find(case("mse"), "forward", memory.timer, operands(case()))
    assert (len(memory.moved), memory.loads) == (before, 1)
    limits.find(case(), "forward_backward", memory.timer, operands(case()))
    assert len(memory.moved) > before


def test_repeated_limit_keeps_the_faster_time(memory):
    limits = Limits("cpu", memory.load)
    asked: Asked = (case(), "forward", memory.timer, operands(case()))
    limits.find(*asked)
    for second, kept in ((2.5, 2.0), (1.5, 1.5)):
        memory.calls[1] = memory.clock.spend(second)
        assert limits.find(*asked, again=True).seconds == kept
        assert limits.find(*asked).seconds == kept
    memory.failure = torch.OutOfMemoryError("out of memory")
    assert limits.find(*asked, again=True).seconds == 1.5


def test_probe_sampled_in_the_rounds_is_the_fastest_variant(memory):
    limits = Limits("cpu", memory.load)
    asked: Asked = (case(), "forward_backward", memory.timer, operands(case()))
    assert limits.contender(*asked) is None  # nothing was measured yet
    limits.find(*asked)
    before = memory.clock.seconds()
    contender = limits.contender(*asked)
    assert contender is not None
    contender.call()
    assert memory.clock.seconds() - before == 2.0
    assert memory.moved[-1] == ([256, 256], [256])
    assert not contender.awaited


def test_empty_case_has_no_limit(memory):
    empty = case(shape=(0, 8))
    found = Limits("cpu", memory.load).find(empty, "forward", memory.timer, operands(empty))
    assert (found.seconds, found.reason, memory.loads) == (None, "", 0)


def test_a_probe_that_fails_says_why():
    for error, told in (
        (RuntimeError("no kernel reads 9 arrays.\nmore"), "no kernel reads 9 arrays"),
        (torch.OutOfMemoryError("out of memory\n"), "out of memory"),
    ):
        memory = FakeMemory()
        memory.failure = error
        found = Limits("cpu", memory.load).find(case(), "forward", memory.timer, operands(case()))
        assert (found.seconds, found.reason) == (None, told)


def test_a_probe_that_cannot_be_built_is_asked_for_once():
    loads = []

    def refuse(device):
        loads.append(device)
        raise UnfitError("there is no compiler.")

    limits = Limits("cpu", refuse)
    timer = ClockTimer(FakeClock())
    for size in ((8, 8), (4, 4)):
        asked = case(shape=size)
        found = limits.find(asked, "forward", timer, operands(asked))
        assert found.reason == "there is no compiler"
    assert loads == ["cpu"]


def test_variants_are_sampled_as_long_as_asked_for(memory, monkeypatch):
    given = []

    def sample(timer, contenders, timing, **others):
        given.append(timing)
        return interleave(timer, contenders, timing, **others)

    monkeypatch.setattr(limits_module, "interleave", sample)
    asked = case()
    find = partial(Limits("cpu", memory.load).find, asked, "forward", memory.timer, operands(asked))
    assert find(timing=RANKED).seconds == 2.0
    find(again=True)
    assert given == [RANKED, Timing(0.0, 60.0)]
