import json
import random

import pytest
import torch

from losscli.bench import selftest
from losscli.bench.selftest import Bench, TimerTest, bench_of, spin_on_cpu
from losscli.cli.main import run
from losscli.implementations.timer import CpuTimer
from losscli.runs.records import FAIL, PASS, TimerTestResult
from tests.fake_time import FakeClock


class Wrong(CpuTimer):
    """Changes each sample, by the name of what it is of."""

    def __init__(self, change, **given):
        super().__init__(**given)
        self.change = change

    def measure(self, queue):
        samples = zip(super().measure(queue), queue, strict=True)
        return [self.change(sample, warm.name) for sample, warm in samples]


class ReadClock(FakeClock):
    """A clock whose reading takes time, as an empty call would otherwise never be warm."""

    def __call__(self):
        self.now += 30
        return self.now


RANDOM = random.Random(0)
SPINS, KERNELS = ["known time spin"] * 2, ["faster kernel", "slower kernel"]
EITHER = ["faster spin", "slower spin", *KERNELS]
FAULTS = {
    "none": (lambda sample, name: sample, []),
    "takes 10 % too long": (lambda sample, name: 1.1 * sample, SPINS),
    "adds 15 us": (lambda sample, name: 15e-6 + sample, ["known time spin", "overhead nothing"]),
    "is off by up to a half, either way": (
        lambda sample, name: RANDOM.uniform(0.5, 1.5) * sample,
        [*SPINS, "same kernel", *EITHER],
    ),
    "returns a constant time": (
        lambda sample, name: 500e-6,
        ["known time spin", "overhead nothing", *EITHER],
    ),
    "measures the second of two as faster": (
        lambda sample, name: sample * (1 if name == "a" else 0.9),
        [*SPINS, "same kernel", "faster spin", "faster kernel"],
    ),
}


@pytest.mark.parametrize(("change", "parts"), FAULTS.values(), ids=FAULTS)
def test_each_fault_of_a_timer_fails_the_parts_that_it_touches(monkeypatch, change, parts):
    monkeypatch.setattr(selftest, "RUNS_OF_THE_SAME", 20)
    monkeypatch.setattr(selftest, "RUNS_OF_EACH_WAY", 5)
    clock = ReadClock()  # which only work and readings move
    timer = Wrong(change, clock=clock)
    bench = Bench("cpu", timer, clock.spend, clock.spend(50e-6), clock.seconds)
    results = [r for part in selftest.plan(bench) for r in selftest.run(part)]
    assert [f"{r.test} {r.subject}" for r in results if r.status == FAIL] == parts


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


@pytest.fixture
def found(monkeypatch):
    def part(result):
        return TimerTest(result.test, lambda: result)

    def come_to(*results):
        monkeypatch.setattr(selftest, "plan", lambda bench: list(map(part, results)))

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
