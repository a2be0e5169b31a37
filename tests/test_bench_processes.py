import json
import os
import socket
import sys
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from losscli.bench.limit import Limit
from losscli.bench.plan import Budget, plan
from losscli.bench.processes import (
    MeasuringProcess,
    ProcessDiedError,
    Processes,
    environment,
    share,
)
from losscli.bench.results import merge, timed, untimed
from losscli.bench.runner import Measured, Runner
from losscli.bench.worker import serve
from losscli.cli.main import run
from losscli.config.schema import Config, LossChoice, Timing
from losscli.errors import BuildError, LosscliError
from losscli.machine import allocator
from losscli.processes import Channel
from losscli.reasons import Code, Reason
from losscli.runs.encoding import read_value
from losscli.runs.records import BenchResult
from tests.fake_bench import FixedLimits, Seen, StepTimer
from tests.fake_time import FakeClock
from tests.parameters import SLOW

TIMING = Timing(min_time=0.4, max_time=4.0, processes=4)
NAMES = ("custom", "reference")
WRONG = Reason(Code.WRONG, "loss: off")


@pytest.fixture
def task():
    config = Config(
        losses=(LossChoice("smooth_l1", {"beta": (0.5,)}),),
        sizes=((8, 8),),
        implementations=NAMES,
        timing=TIMING,
    )
    (made,) = plan(config, "cpu")
    return made


def found(task, pass_, name, given, **fields):
    """Return a result with these samples, or with this reason."""
    if isinstance(given, Reason):
        return untimed(task, pass_, name, given)
    result = timed(task, pass_, name, given, stop="confidence", **fields)
    return structs.replace(result, limit_gbps=result.bytes / 0.5 / 1e9)


class FakeWorker:
    """Answers each task with given outcomes, or dies."""

    ready = True

    def __init__(self, answers, environ, spend):
        self.given, self.environ, self.channel, self.spend = answers, environ, self, spend
        self.asked, self.ended = [], False

    def put(self, task):
        self.asked.append(task)

    def answers(self, notify):
        task = self.asked[-1]
        self.spend()
        for pass_, names in task.passes.items():
            if self.given == "dies":
                raise ProcessDiedError(-11)
            results = [found(task, pass_, name, self.given[name]) for name in names]
            yield Measured(results, {(pass_,): cast(Any, None)})

    def close(self):
        self.ended = True


@pytest.fixture
def pool():
    """Make processes with given answers; later processes answer as the last one."""

    def make(*answers, unsettable="a test", seconds=0.0, **given):
        started, clock = [], FakeClock()

        def start(command, environ):
            answer = answers[min(len(started), len(answers) - 1)]
            started.append(FakeWorker(answer, environ, clock.spend(seconds)))
            return started[-1]

        given |= {"start": start, "unsettable": lambda: unsettable, "clock": clock.seconds}
        return Processes("cpu", 2, **given), started

    return make


def test_worker_reports_what_its_runner_measures(task):
    runner = Runner(
        "cpu",
        free_bytes=lambda device: 2**40,
        make_timer=lambda device, evicts, mode: StepTimer(FakeClock()),
        limits=cast(Any, FixedLimits(Limit())),
        conditions=Seen(),
    )
    quick = replace(task, passes={"forward": ("reference",)})
    (reported,) = answers(quick, runner)
    (result,) = reported.results
    assert result.seconds.median == 2.0


def answers(task, runner):
    """Yield what a worker answers to a task after its first answer."""
    ours, theirs = map(Channel, socket.socketpair())
    ours.put(task)
    ours.socket.shutdown(socket.SHUT_WR)
    with ours:
        with theirs:
            serve(theirs, runner)
        assert list(ours.each()) == []
        yield from ours.each()


@pytest.mark.parametrize("error", [BuildError("no kernels"), ValueError("odd")])
def test_worker_sends_an_error_that_ends_the_run(task, error):
    class Failing:
        device = "cpu"

        def measure(self, task):
            raise error

    with pytest.raises(type(error), match=str(error)):
        list(answers(task, cast(Any, Failing())))


@contextmanager
def process(text):
    worker = MeasuringProcess([sys.executable, "-c", READY + text], os.environ)
    with closing(worker):
        assert list(worker.answers(print)) == []
        worker.channel.put("task")
        yield worker


READY = """
import os, signal, sys
from losscli.errors import BuildError
from losscli.processes import to_parent
def fails():
    channel.put("note")
    raise BuildError("no kernels")
context = to_parent()
channel = context.__enter__()
channel.put(None)
channel.receive()
"""


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "failed", "ended by SIGSEGV"),
        pytest.param("sys.exit(7)", "failed", "ended with exit code 7", marks=SLOW),
        ("os.kill(os.getpid(), signal.SIGKILL)", "skipped", "runs out of memory"),
    ],
)
def test_dead_process_reports_its_exit_code_or_signal(text, status, told):
    told_by = "the process that measured the case"
    with process(text) as worker, pytest.raises(ProcessDiedError, match=told_by) as raised:
        list(worker.answers(print))
    assert raised.value.status == status
    assert told in raised.value.why.text


def test_error_of_a_process_ends_the_run_with_its_exit_code(task):
    text, notes = "with channel.answer(): fails()", []
    with process(text) as worker, pytest.raises(LosscliError, match="no kernels") as raised:
        list(worker.answers(notes.append))
    assert raised.value.exit_code == 3
    assert notes == ["note"]


def test_results_combine_all_processes(pool, task):
    speeds = [{"custom": [1.0] * 9, "reference": [n] * 9} for n in (2.0, 2.2, 2.1)]
    processes, started = pool(*speeds)
    custom, reference = list(processes.run(replace(task, passes={"forward": NAMES})))
    assert len(started) == TIMING.processes
    assert custom.seconds.processes == (9, 9, 9, 9)
    assert custom.ratios["reference"].processes == pytest.approx((2.0, 2.2, 2.1, 2.1))
    assert custom.ratios["reference"].verdict == "faster"
    assert custom.reason == "confidence: 36 samples of 4 processes, median within 0.00%"
    assert reference.limit_gbps == pytest.approx(reference.bytes / 0.5 / 1e9)


def test_record_with_processes_is_read_back(pool, task):
    processes, _ = pool({name: [1.0, 2.0, 3.0] for name in NAMES})
    for result in processes.run(task):
        written = json.loads(json.dumps(result.to_json()))
        assert read_value(BenchResult, written) == result


def test_processes_share_the_time_of_a_case():
    assert share(TIMING) == replace(TIMING, min_time=0.1, max_time=1.0, confidence=0.02)


def test_implementation_that_one_process_fails_has_no_time(pool, task):
    right = {name: [1.0, 1.1] for name in NAMES}
    processes, started = pool(right, {**right, "custom": WRONG}, right)
    custom, reference = list(processes.run(replace(task, passes={"forward": NAMES})))
    assert (custom.status, reference.status) == ("failed", "ok")
    assert custom.reason == "in process 2, correct in those before: loss: off"
    assert started[2].asked[0].passes == {"forward": ("reference",)}


def test_process_that_dies_fails_its_case_and_is_replaced_for_the_next(pool, task):
    right = {name: [1.0, 1.1] for name in NAMES}
    processes, started = pool(right, "dies", right)
    results = list(processes.run(task))
    assert {(r.status, r.code) for r in results} == {("failed", "process_died")}
    assert "ended by SIGSEGV" in results[0].reason
    assert started[1].ended
    assert not started[2].asked
    assert {r.status for r in processes.run(task)} == {"ok"}
    assert len(started) - 1 == TIMING.processes


def test_allocator_is_set_and_the_default_one_is_recorded_too(pool, task):
    fair = {"custom": [1.0, 1.0], "reference": [2.0, 2.0]}
    default = {"custom": [1.0, 1.0], "reference": [9.0, 9.0]}
    assert TIMING.processes
    processes, started = pool(*[fair] * TIMING.processes, default, unsettable="")
    _, reference = list(processes.run(replace(task, passes={"forward": NAMES})))
    kept = [allocator.KEEPING.items() <= worker.environ.items() for worker in started]
    assert kept == [*[True] * TIMING.processes, False]
    assert all("PATH" in worker.environ for worker in started)
    assert (reference.seconds.median, reference.default_allocator_seconds) == (2.0, 9.0)


def test_process_with_the_default_allocator_measures_no_limit_and_half_as_long(pool, task):
    processes, started = pool({name: [1.0, 1.1] for name in NAMES}, unsettable="")
    list(processes.run(task))
    asked = [worker.asked[0] for worker in started]
    assert [each.limited for each in asked] == [True] * 4 + [False]
    assert [each.timing.max_time for each in asked] == [1.0] * 4 + [0.5]


def test_first_process_measures_memory_and_the_next_get_what_was_right(pool, task):
    processes, started = pool({name: [1.0, 1.1] for name in NAMES})
    processes.start([0])  # it can start before its first task
    assert len(started) == 1
    with processes:
        list(processes.run(task))
    assert len(started) == 4
    assert all(worker.ended for worker in started)
    asked = [worker.asked[0] for worker in started]
    assert [each.peaks for each in asked] == [True, False, False, False]
    both = [("forward",), ("forward_backward",)]
    assert [list(each.right) for each in asked] == [[], both, both, both]


def test_record_says_why_the_allocator_is_not_set(monkeypatch, task):
    monkeypatch.setattr(allocator, "unsettable", lambda: "the C library is not glibc")
    assert environment("cpu", [task]) == {
        "allocator": "default",
        "allocator_reason": "the C library is not glibc",
    }
    assert environment("cuda:0", [task]) == {}


def test_conditions_of_all_processes_are_joined(task):
    def around(**conditions):
        return found(task, "forward", "custom", [1.0], conditions=conditions)

    one = around(celsius=[40, 50], others=0.1, host_gaps=1, throttle_reasons=["power limit"])
    other = around(celsius=[45, 60], others=None, host_gaps=2, throttle_reasons=[])
    assert merge([one, other]).conditions == {
        "celsius": [40, 60],
        "others": 0.1,
        "host_gaps": 3,
        "throttle_reasons": ["power limit"],
    }


def test_bench_measures_in_real_processes(capsys, monkeypatch):
    monkeypatch.setattr(allocator, "unsettable", lambda: "a test")
    arguments = ["--loss", "mse", "--size", "8x8", "--impl", "reference,functional"]
    arguments += ["--cache", "warm", "--max-time", "1ms", "--processes", "2", "--pass", "forward"]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert run(["bench", "--device", "cpu", *arguments, "--format", "json"]) == 0
    for result in json.loads(capsys.readouterr().out)["results"]:
        assert result["status"] == "ok"
        assert len(result["seconds"]["processes"]) == 2


def test_further_processes_measure_as_the_budget_allows(pool, task):
    processes, started = pool({name: [1.0, 1.1] for name in NAMES}, seconds=2.0)
    within = replace(task, budget=Budget(30, 20, 6))
    results = list(processes.run(within))
    assert len(started) == 2
    assert {len(result.seconds.processes) for result in results} == {2}
    results = list(processes.run(replace(task, budget=Budget(30, 0, 0))))
    assert {(r.status, r.code) for r in results} == {("skipped", "budget")}


def test_times_of_earlier_processes_stand_when_a_later_one_has_no_budget_left(pool, task):
    right = {name: [1.0, 1.1] for name in NAMES}
    processes, _ = pool(right, {**right, "custom": Budget(30, 0, 0).used_up})
    custom, _ = list(processes.run(replace(task, passes={"forward": NAMES})))
    assert custom.status == "ok"


def test_results_of_the_first_process_are_shown_before_others_start(pool, task):
    started_when_shown = []

    def show(results):
        started_when_shown.append((len(started), results[0].ratios["reference"].value))

    processes, started = pool({"custom": [1.0], "reference": [2.0]}, show=show)
    list(processes.run(replace(task, passes={"forward": NAMES})))
    assert started_when_shown == [(1, 2.0)]
    assert len(started) == TIMING.processes
