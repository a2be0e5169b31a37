"""The runner and the limit of the memory: what is faster than it, and what moves the same bytes."""

import itertools
from unittest.mock import Mock

import pytest

from losscli.bench.limit import Limit
from losscli.bench.sampling import Contender
from losscli.machine import memory
from tests.fake_bench import FixedLimits, Seen


def functional(bench, limit=None, **changes):
    """Return the only result, of a limit that is found once or changes when it is repeated."""
    limits = limit if isinstance(limit, FixedLimits) else FixedLimits(limit or Limit())
    given = {"passes": ("forward",), "implementations": ("functional",), "limits": limits}
    (result,) = bench(**given | changes)
    return result


def test_result_has_the_memory_limit_beside_its_traffic(bench):
    result = functional(bench, Limit(seconds=0.5))
    assert result.limit_gbps == pytest.approx(1024e-9)
    assert result.limit_share == pytest.approx(0.5)
    assert not result.impossible


def test_the_probe_reads_the_operands_and_the_incoming_gradient(bench):
    limits = FixedLimits(Limit())
    bench(implementations=("reference",), reductions=("none",), limits=limits)
    square = (8, 8)
    assert limits.asked == [("forward", [square] * 2), ("forward_backward", [square] * 3)]


def test_time_faster_than_the_memory_is_impossible(bench):
    limits = FixedLimits(Limit(seconds=1.1))
    reference, functional = bench(passes=("forward",), limits=limits)
    assert not reference.impossible
    assert functional.impossible
    assert functional.reason.startswith("IMPOSSIBLE: 110% of the measured limit; ")


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


def test_reason_has_no_impossible_on_a_busy_machine(bench):
    busy = Seen(others=0.5)
    result = functional(bench, Limit(seconds=1.1), conditions=busy, notify=len)
    assert not result.impossible
    assert result.reason.startswith("confidence: ")


def test_unknown_limit_has_a_reason(bench):
    result = functional(bench, Limit(reason="out of memory"))
    assert (result.limit_gbps, result.impossible) == (None, False)
    assert result.reason.endswith("; limit not measured: out of memory")
    assert (result.stop, result.no_limit) == ("confidence", "out of memory")


def test_no_memory_is_measured_where_another_process_has(bench):
    result = functional(bench, peaks=False)
    assert (result.status, result.peak_extra_bytes) == ("ok", None)
