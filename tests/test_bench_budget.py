import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from losscli.bench import runner
from losscli.bench.limit import Limit
from losscli.bench.plan import (
    BEFORE_REPORT,
    Budget,
    Schedule,
    TimeIsUp,
    Turns,
    alarm,
    plan,
    plan_id,
    remaining,
)
from losscli.bench.results import untimed
from losscli.bench.runner import Runner
from losscli.cli import bench as cli
from losscli.cli.main import run
from losscli.config.loader import load_config
from losscli.config.schema import Config, LossChoice, Timing
from losscli.reasons import Code, Reason
from losscli.runs.records import SKIPPED
from tests.fake_bench import FixedLimits, Seen
from tests.fake_time import ClockTimer, FakeClock
from tests.handmade import result

TIMING = Timing(min_time=0.0, max_time=60.0, confidence=1e-9, processes=1)
NAMES = ("reference", "functional")


def tasks(count=1, **changes):
    fields: dict[str, Any] = {"losses": (LossChoice("mse"),), "sizes": ((8, 8),)}
    fields |= {"implementations": NAMES, "timing": TIMING}
    return plan(Config(**(fields | changes)), "cpu") * count


class SlowTimer(ClockTimer):
    """Each sample takes a second of the clock."""

    def measure(self, queue):
        super().measure(queue)
        self.clock.spend(float(len(queue)))()
        return [1.0] * len(queue)


def measured(task, clock, conditions=None):
    """Return the results of a runner whose samples take a second, and the rounds of each batch."""
    timer = SlowTimer(clock)
    made = Runner(
        "cpu",
        free_bytes=lambda device: 2**40,
        make_timer=lambda device, evicts, mode: timer,
        limits=cast(Any, FixedLimits(Limit())),
        conditions=conditions or Seen(),
        clock=clock.seconds,
    )
    results = list(made.run(task))
    return results, sum(map(len, timer.batches)) // len(NAMES)


def test_each_task_has_its_share_of_the_time_that_is_left():
    clock = FakeClock()
    handed_out = iter(Schedule(tasks(4), 100, clock.seconds))
    first = next(handed_out).budget
    assert (first.total, first.left, first.share) == (100, 97, 97 / 4)
    clock.spend(37.0)()
    second = next(handed_out).budget
    assert (second.left, second.share) == pytest.approx((60, 20))
    clock.spend(70.0)()
    third = next(handed_out).budget
    assert (third.left, third.share) == pytest.approx((-10, 0))


def test_run_without_a_budget_has_no_limit():
    unlimited = Schedule(tasks(2), Config().budget, time.monotonic)
    assert [task.budget for task in unlimited] == [Budget()] * 2


def test_first_task_is_built_for_before_all_others():
    built, handed_out = [], []
    for task in Schedule(tasks(3), 100, lambda: 0.0, lambda some: built.append(len(some))):
        handed_out.append((task, list(built)))
    assert [so_far for _, so_far in handed_out] == [[1], [1, 2], [1, 2]]


def test_nothing_is_built_when_no_time_is_left():
    built: list[object] = []
    list(Schedule(tasks(3), 100, lambda: 98.0, built.append))
    assert built == []
    assert BEFORE_REPORT == 0.97


def test_passes_share_the_time_of_a_task():
    (task,) = tasks()
    results, rounds = measured(replace(task, budget=Budget(100, 100, 12)), FakeClock())
    assert {(r.status, r.stop) for r in results} == {("ok", "budget")}
    assert rounds == 3 + 3


def test_each_pass_takes_a_sample_when_its_share_is_used_up():
    (task,) = tasks()
    results, rounds = measured(replace(task, budget=Budget(100, 100, 0)), FakeClock())
    assert [len(result.seconds.samples) for result in results] == [1] * 4
    assert rounds == 2


def test_pass_is_skipped_when_the_run_has_no_time_left():
    (task,) = tasks()
    results, rounds = measured(replace(task, budget=Budget(30, 2, 2)), FakeClock())
    assert [result.status for result in results] == ["ok", "ok", "skipped", "skipped"]
    assert (results[2].code, results[2].reason) == ("budget", "the budget of 30 s is used up")
    assert rounds == 1


def test_wrong_implementation_stays_failed_when_the_budget_ends(monkeypatch):
    def admit(contents, implementation, passes, *_):
        if implementation.name == "reference":
            return untimed(contents.task, passes.pass_, "reference", Reason(Code.WRONG, "wrong"))
        raise TimeIsUp

    monkeypatch.setattr(runner, "_admit", admit)
    (task,) = tasks()
    results, _ = measured(replace(task, budget=Budget(100, 100, 50)), FakeClock())
    assert {(r.implementation, r.code) for r in results} == {
        ("reference", Code.WRONG),
        ("functional", Code.BUDGET),
    }


def test_share_that_is_used_up_is_no_throttling(monkeypatch):
    (task,) = tasks()
    conditions = Seen()
    monkeypatch.setattr(conditions, "slowed", lambda: True)
    results, _ = measured(replace(task, budget=Budget(100, 100, 0)), FakeClock(), conditions)
    assert {(r.status, r.code) for r in results} == {(SKIPPED, Code.BUDGET)}


def test_alarm_ends_a_block_and_none_begins_without_time():
    began = time.monotonic()
    with suppress(TimeIsUp), alarm(0.01):
        time.sleep(10)
    with suppress(TimeIsUp), alarm(0.0):
        pytest.fail("began")
    assert time.monotonic() - began < 5


def test_alarm_stays_silent_once_its_block_has_ended():
    with alarm(0.05):
        pass
    time.sleep(0.1)


def test_processes_take_turns_while_their_share_lasts():
    clock = FakeClock()
    turns = Turns(Budget(100, 90, 20), clock.seconds)
    assert turns.has_time(2.0)
    assert turns.take(4).share == 5
    clock.spend(8.0)()
    assert turns.has_time(2.0)
    assert turns.take(3) == Budget(100, 82, 4)
    clock.spend(8.0)()
    assert not turns.has_time(0.0)


def test_first_process_has_a_turn_unless_the_run_has_no_time():
    assert Turns(Budget(100, 1, 0), lambda: 0.0).has_time(2.0)
    assert not Turns(Budget(100, 0, 0), lambda: 0.0).has_time(0.0)


def test_resumed_run_measures_what_no_time_was_left_for():
    (task,) = tasks(passes=("forward",))
    budget = Budget(30, 0, 0)
    skipped = [untimed(task, "forward", n, budget.used_up, status=SKIPPED) for n in NAMES]
    assert remaining([task], skipped) == ([task], [])
    other = [structs.replace(each, code=Code.INSUFFICIENT_MEMORY) for each in skipped]
    assert remaining([task], other) == ([], other)


def test_budget_is_no_part_of_a_plan():
    assert plan_id(tasks()) == plan_id(tasks(timing=replace(TIMING, budget=30.0)))


def test_shortest_budget_of_tables_counts(config):
    tables = "[{title: a, timing: {budget: 1m}}, {title: b, timing: {budget: 30s}}, {title: c}]"
    assert load_config(config(f"{{sizes: 8, tables: {tables}}}"), {}).budget == 30
    assert load_config(config("{sizes: 8, timing: {budget: 2m}}"), {}).budget == 120


def test_command_skips_what_it_has_no_time_for(capsys):
    options = ["--device", "cpu", "--loss", "mse", "--size", "8x8", "--impl", "reference"]
    assert run(["bench", *options, "--budget", "0s"]) == 4
    assert "nothing could run: the budget of 0 s is used up." in capsys.readouterr().err


def test_rows_are_shown_as_they_are_measured_on_a_terminal(monkeypatch, capsys):
    left = result(speedup={}, seconds=None, status=SKIPPED, reason="too large")
    cli._show([result(), left])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(cli, "has_status", lambda: True)
    cli._show([result(), left])
    told = capsys.readouterr()
    assert told.err == f"{result().case.name}, forward, custom: 2.000 ms, 4.00x eager PyTorch\n"
    assert told.out == ""
