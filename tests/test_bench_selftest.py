"""`losscli self-test timer`: a right timer passes, and a wrong one fails."""

import json
import random

import pytest
import torch

from losscli.bench import selftest
from losscli.bench.selftest import Bench, Part, bench_of, spin_on_cpu
from losscli.cli.main import run
from losscli.implementations.timer import CpuTimer
from losscli.report.render import render
from losscli.runs.records import FAIL, PASS, Run, TimerTestResult
from tests.fake_time import FakeClock


class Late(CpuTimer):
    """Takes 10 % too long."""

    def measure(self, queue):
        return [1.1 * sample for sample in super().measure(queue)]


class Slow(CpuTimer):
    """Adds 15 microseconds to each call."""

    def measure(self, queue):
        return [15e-6 + sample for sample in super().measure(queue)]


class Noisy(CpuTimer):
    """Is off by up to a half, either way."""

    random = random.Random(0)

    def measure(self, queue):
        return [self.random.uniform(0.5, 1.5) * sample for sample in super().measure(queue)]


class Blind(CpuTimer):
    """Returns a constant time for everything."""

    def measure(self, queue):
        super().measure(queue)
        return [500e-6] * len(queue)


class Partial(CpuTimer):
    """Measures each call as faster than it is, but the first of two."""

    def measure(self, queue):
        samples = super().measure(queue)
        return [s * (1 if w.name == "a" else 0.9) for s, w in zip(samples, queue, strict=True)]


class ReadClock(FakeClock):
    """A clock whose reading takes time, as an empty call would otherwise never be warm."""

    def __call__(self):
        self.now += 30
        return self.now


def failed(kind):
    """Return the parts that fail a timer, by a clock that only work and readings move."""
    clock = ReadClock()
    bench = Bench("cpu", kind(clock=clock), clock.spend, clock.spend(50e-6), clock.seconds)
    results = [r for part in selftest.plan(bench) for r in selftest.run(part)]
    return [f"{r.test} {r.subject}" for r in results if r.status == FAIL]


SPINS, KERNELS = ["known time spin"] * 2, ["faster kernel", "slower kernel"]
EITHER = ["faster spin", "slower spin", *KERNELS]
FAULTS = {
    CpuTimer: [],
    Late: SPINS,
    Slow: ["known time spin", "overhead nothing"],
    Noisy: [*SPINS, "same kernel", *EITHER],
    Blind: ["known time spin", "overhead nothing", *EITHER],
    Partial: [*SPINS, "same kernel", "faster spin", "faster kernel"],
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_of_a_timer_fails_the_parts_that_it_touches(monkeypatch, kind):
    monkeypatch.setattr(selftest, "RUNS_OF_THE_SAME", 20)
    monkeypatch.setattr(selftest, "RUNS_OF_EACH_WAY", 5)
    assert failed(kind) == FAULTS[kind]


def test_a_spin_lasts_as_long_as_the_clock_says():
    readings = iter(range(0, 10**6, 700))
    spin_on_cpu(5e-6, clock=lambda: next(readings))()
    assert next(readings) == 700 * 9  # 0 and then the first reading that is at least 5000


def test_self_test_on_a_cpu_uses_one_thread():
    bench = bench_of("cpu")
    with torch.autograd.profiler.profile() as profiler:
        bench.kernel()
    assert {event.thread for event in profiler.function_events} == {1}


RESULTS = (
    TimerTestResult("known time", "spin", PASS, "off by +0.25%", 200.5e-6, 200e-6),
    TimerTestResult("overhead", "nothing", PASS, "", 35e-9, 1e-6),
    TimerTestResult("same", "kernel", FAIL, "10 times unclear", right=90, runs=100),
)


def test_report_of_the_timer_self_test_as_a_whole(golden):
    environment = {"device": "cpu", "cpu": "A CPU", "threads": 2, "torch": "2.13.0"}
    made = Run(kind="timer-test", environment=environment, results=RESULTS)
    golden("timer_self_test.txt", render(made, "table"))
    golden("timer_self_test.csv", render(made, "csv"))


@pytest.fixture
def found(monkeypatch):
    """Make the parts of the self-test return these results."""

    def come_to(*results):
        parts = [Part(result.test, lambda result=result: result) for result in results]
        monkeypatch.setattr(selftest, "plan", lambda bench: parts)

    return come_to


SELF_TEST = ("self-test", "timer", "--device", "cpu")


def test_timer_self_test_exits_1_if_a_part_fails(capsys, found):
    for results, more, code, count in (
        (RESULTS, [], 1, 3),
        (RESULTS[:2], [], 0, 2),
        (RESULTS[::-1], ["--fail-fast"], 1, 1),
    ):
        found(*results)
        assert run([*SELF_TEST, *more, "--format", "json"]) == code
        record = json.loads(capsys.readouterr().out)
        assert record["kind"] == "timer-test"
        assert [r["status"] for r in record["results"]] == [r.status for r in results][:count]


def test_timer_self_test_is_reported_in_every_format(capsys, found, tmp_path, monkeypatch):
    found(*RESULTS)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    assert run([*SELF_TEST, "-o", str(tmp_path / "table")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "self-test of the timer: 2 of 3 parts passed\n" in captured.err
    assert captured.err.endswith(f"losscli: wrote {tmp_path / 'table'}\n")
    assert (tmp_path / "summary").read_text().startswith("## losscli timer-test\n")


@pytest.mark.gpu
def test_gpu_spin_has_its_length_without_events():
    spin = selftest.spinner_on_gpu("cuda:0")(5e-3)
    assert selftest._fastest(bench_of("cuda:0"), spin) == pytest.approx(5e-3, rel=0.05)
