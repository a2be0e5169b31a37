"""What ranks agree on: the calls and samples of their timers, and a failure of any check."""

from dataclasses import replace
from functools import partial

import pytest

from losscli.bench.ranks import SlowestTimer
from losscli.bench.sampling import Contender, interleave
from losscli.config.schema import Timing
from losscli.errors import RankError
from losscli.implementations.timer import CallFailedError, CpuTimer
from losscli.ranks.group import Group, free_bytes, largest, together
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.verify.ranks import agreed
from tests.fake_time import FakeClock
from tests.handmade import case
from tests.ranks.fake_ranks import on_ranks

SECONDS = (10e-6, 30e-6)
"""The time of a call on each of two ranks."""


def timer_of(rank, clock, evict=None):
    own = CpuTimer(evict, clock, agree=partial(largest, rank), meet=rank.meet)
    return SlowestTimer(own, rank)


def test_ranks_make_as_many_calls_to_warm_up_and_a_sample_of_as_many():
    def program(rank):
        clock, calls = FakeClock(), []
        spend = clock.spend(SECONDS[rank.rank])
        warm = timer_of(rank, clock).warm_up(lambda: (calls.append(1), spend()))
        return len(calls), warm.repeats

    first, second = on_ranks(2, program)
    assert first == second
    assert first[1] == 2  # of 30 us, the slower rank's, in 50 us


def test_the_sample_of_the_slowest_rank_counts_on_all_and_each_ranks_own_is_kept():
    def program(rank):
        clock = FakeClock()
        timer = timer_of(rank, clock)
        warm = timer.warm_up(clock.spend(SECONDS[rank.rank]))
        return timer.measure([warm, warm]), warm.of_ranks

    for samples, of_ranks in on_ranks(2, program):
        assert samples == pytest.approx([30e-6] * 2)
        assert of_ranks[1] == pytest.approx(SECONDS)


def test_ranks_meet_after_the_cache_is_evicted_and_outside_the_time():
    def program(rank):
        clock, order = FakeClock(), []
        spend = clock.spend(SECONDS[rank.rank])
        timer = timer_of(rank, clock, evict=lambda: order.append("evict"))
        timer.own.meet = lambda: (order.append("meet"), clock.spend(1.0)())
        warm = timer.warm_up(lambda: (order.append("call"), spend()))
        order.clear()
        return timer.measure([warm]), order

    for samples, order in on_ranks(2, program):
        assert order == ["evict", "meet", "call"]
        assert samples == pytest.approx([30e-6])


def test_sampling_takes_as_many_samples_on_ranks_whose_clocks_differ():
    def program(rank):
        clock = FakeClock()
        timer = timer_of(rank, clock)
        contender = Contender("one", clock.spend(*(SECONDS[rank.rank] * n for n in (1, 2, 3, 2))))
        contender.warm_up(timer)
        agreed = partial(largest, rank)
        stop = interleave(
            timer,
            [contender],
            Timing(min_time=0.01, max_time=0.02),
            seed=0,
            clock=lambda: agreed(clock.seconds()),
        )
        return stop, contender.samples

    first, second = on_ranks(2, program)
    assert first == second


def test_a_call_that_raises_on_all_ranks_is_its_own_failure():
    def program(rank):
        clock = FakeClock()
        timer = timer_of(rank, clock)
        warm = timer.warm_up(clock.spend(1.0))
        timer.measure([replace(warm, call=partial(int, "x"))])

    assert {type(each) for each in on_ranks(2, program)} == {CallFailedError}


def test_an_error_of_one_rank_ends_the_run_of_all_and_names_the_rank():
    def program(rank):
        return together(rank, partial(int, "x") if rank.rank else int)

    first, second = on_ranks(2, program)
    assert {type(first), type(second)} == {RankError}
    assert "rank 0 raised nothing; rank 1 raised ValueError: invalid literal" in str(first)
    assert (first.is_told, second.is_told) == (False, True)  # one message, of the first rank


def test_free_memory_of_a_host_is_shared_and_the_least_counts():
    def program(rank):
        shared = free_bytes(rank, "cpu", lambda device: 100 + rank.rank)
        own = free_bytes(rank, "cuda:0", lambda device: 100 + rank.rank)
        return shared, own

    assert on_ranks(2, program) == [(50, 100)] * 2


def test_a_process_that_is_alone_agrees_with_itself():
    assert largest(Group(), 3.0) == 3.0
    assert together(Group(), lambda: "result") == "result"


def result(check="value", status=PASS, reason=""):
    return VerifyResult(case(), "custom", check, status, reason)


def test_the_first_failure_of_any_rank_is_the_result_of_all():
    for statuses, found in (
        ((PASS, PASS), (PASS, "of rank 0")),
        ((FAIL, PASS), (FAIL, "of rank 0")),
        ((PASS, FAIL), (FAIL, "on rank 1: of rank 1")),
        ((FAIL, FAIL), (FAIL, "of rank 0")),
    ):

        def program(rank, statuses=statuses):
            return agreed(result("value", statuses[rank.rank], f"of rank {rank.rank}"), rank)

        assert [(each.status, each.reason) for each in on_ranks(2, program)] == [found] * 2


def test_ranks_at_different_checks_end_the_run():
    def program(rank):
        return agreed(result(("value", "parts")[rank.rank]), rank)

    errors = on_ranks(2, program)
    assert {type(error) for error in errors} == {RankError}
    assert "rank 0 is at the check value; rank 1 is at the check parts" in str(errors[0])
