"""What ranks agree on: the calls and samples of their timers, and a failure of any check."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from msgspec import structs

from losscli.bench.ranks import SlowestTimer
from losscli.bench.sampling import Contender, interleave
from losscli.config.expansion import expand
from losscli.config.loader import load_config
from losscli.config.schema import Timing
from losscli.errors import RankError, UsageError
from losscli.implementations.timer import CallFailedError, CpuTimer
from losscli.losses import find_loss
from losscli.ranks.group import Group, free_bytes, largest, together
from losscli.ranks.launch import exit_code
from losscli.ranks.place import Place, seconds_of_collectives
from losscli.ranks.placements import CUTS, share
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


TORCHRUN = {
    "RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def test_place_is_that_of_torchruns_variables(monkeypatch):
    assert Place.of_environment(TORCHRUN) == Place(rank=1, size=4, local_rank=1)
    assert Place.of_environment({"PATH": "/bin"}) is None
    for change, message in (
        ({"LOCAL_RANK": ""}, "LOCAL_RANK are not. Start it with --ranks N, or by `torchrun"),
        ({"RANK": "one"}, "RANK must be a number, but is 'one'"),
        ({"RANK": "4"}, "RANK must be below WORLD_SIZE, but is 4 of 4"),
    ):
        with pytest.raises(UsageError, match=message):
            Place.of_environment(TORCHRUN | change)
    for given in ("0", "soon", "-1"):
        monkeypatch.setenv("LOSSCLI_RANKS_TIMEOUT", given)
        with pytest.raises(UsageError, match=f"at least 1, but is '{given}'"):
            seconds_of_collectives()


def test_classes_are_split_as_dtensor_splits_them():
    # Of five classes the last of four ranks has none.
    for counts in ([4, 4], [3, 3, 3, 1], [2, 2, 1, 0], [0, 0]):
        ranks = range(len(counts))
        shares = [share(sum(counts), len(counts), rank) for rank in ranks]
        assert [count for _, count in shares] == counts
        assert [first for first, _ in shares] == [sum(counts[:rank]) for rank in ranks]


def test_each_operand_that_is_cut_is_one_of_its_loss():
    for loss, cuts in CUTS.items():
        assert cuts.keys() <= {*find_loss(loss).names}, loss


def failure(code, timestamp=0):
    return SimpleNamespace(exitcode=code, pid=77, timestamp=timestamp)


def test_a_killed_rank_is_named_whatever_the_others_end_with():
    with pytest.raises(RankError, match=r"rank 1 \(process 77\) ended by SIGKILL, as when"):
        exit_code({0: failure(1), 1: failure(-9)})


def test_the_exit_code_is_that_of_the_first_rank():
    assert exit_code({0: failure(2), 1: failure(2)}) == 2
    assert exit_code({2: failure(70)}) == 70
    assert exit_code({0: failure(-15), 1: failure(1)}) == 1  # ended by torchrun after the other
    assert exit_code({0: failure(1), 1: failure(-9, timestamp=30)}) == 1  # so is one that hangs


def test_a_case_of_ranks_is_another_than_the_whole_one():
    (case, *_) = expand(load_config("sharded-cpu", {}).tables[0], "cpu")
    assert case.name.endswith("ranks=1")
    assert case.whole.placement == ""
    assert case != case.whole
    assert {"ranks", "placement"} <= case.to_json().keys()
    assert not {"ranks", "placement"} & case.whole.to_json().keys()
    split = structs.replace(case, ranks=3)
    assert split.shard.shape == (256, 1366)  # that of the rank with the most of 4096 classes
    assert split.floor_bytes("forward") == 4 * 256 * 1366 + 8 * 256
    assert split.floor_bytes("forward") == split.shard.floor_bytes("forward")
