import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from multiprocessing.forkserver import ensure_running
from pathlib import Path

import pytest

from losscli.bench import limit
from losscli.bench.plan import Task, plan_id, remaining
from losscli.cli import main, running
from losscli.config.schema import Timing
from losscli.implementations import IMPLEMENTATIONS
from losscli.render.records import render
from losscli.runs.journal import journal_path
from tests import killable
from tests.handmade import case, result
from tests.handmade import run as made
from tests.parameters import SLOW

REFERENCE = IMPLEMENTATIONS["reference"]
SIZES = (4, 9, 16, 25)
CONFIG = """
losses: mse
sizes: [4, 9, 16, 25]
implementations: [reference, theirs]
timing: {min_time: 1ms, max_time: 1ms, cache: warm, processes: 1}
"""


class Bench:
    """`losscli bench` of CONFIG in a process of its own, which may be killed."""

    def __init__(self, folder, server):
        self.folder, self.log, self._server = folder, folder / "log", server
        self.output, self.config = folder / "out.json", folder / "config.yaml"
        self.config.write_text(CONFIG)

    def start(self, *arguments, wait="nowhere", fresh=False, **environ):
        """Start a process: a fork of one that has imported everything, or a fresh one."""
        self.log.write_text("")
        given = [self.log, wait, "-c", self.config, "-o", self.output, *arguments]
        command = [*map(str, given), "--format", "json"]
        environ["LOSSCLI_DATA_DIR"] = str(self.folder)
        if not fresh:
            return killable.Forked(self._server, command, environ)
        return subprocess.Popen(
            [sys.executable, killable.__file__, *command],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.getcwd()} | environ,
        )

    def run(self, *arguments, **environ):
        """Run to the end; return the exit code and standard error."""
        process = self.start(*arguments, **environ)
        told = process.communicate(timeout=120)[1]
        return process.returncode, told

    def wait_at(self, place, *arguments, fresh=False):
        """Run until a size is computed or a phase begins; return the process that waits there."""
        process = self.start(*arguments, wait=place, fresh=fresh)
        waiting = Path(f"{self.log}.waiting")
        while not waiting.exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.01)
        waiting.unlink()
        return process

    def stop_at(self, place, number, *arguments, fresh=False):
        """Run until a size is computed or a phase begins, and send a signal."""
        process = self.wait_at(place, *arguments, fresh=fresh)
        process.send_signal(number)
        told = process.communicate(timeout=60)[1]
        return process.returncode, told

    def computed(self):
        return sorted({int(line) for line in self.log.read_text().split()})

    def results(self):
        return [key(r) for r in json.loads(self.output.read_text())["results"]]

    def journal(self):
        lines = journal_path(self.output).read_text().splitlines()
        return [json.loads(line) for line in lines[1:]]


def key(record):
    return record["case"]["shape"][0], record["pass"], record["implementation"]


ALL = [
    (size, pass_, name)
    for size in SIZES
    for pass_ in ("forward", "forward_backward")
    for name in ("reference", "theirs")
]


@pytest.fixture(scope="session")
def server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        context = killable.server()
        ensure_running()
    return context


@pytest.fixture
def bench(tmp_path, server):
    return Bench(tmp_path, server)


def test_killed_run_resumes_after_its_last_finished_case(bench):
    assert bench.stop_at(16, signal.SIGKILL)[0] == -signal.SIGKILL
    assert not bench.output.exists()
    finished = bench.journal()
    assert [key(record) for record in finished] == [k for k in ALL if k[0] in (4, 9)]
    with journal_path(bench.output).open("a") as journal:
        journal.write('{"case": {"loss": "mse", "sha')  # half a line
    code, told = bench.run("--resume", bench.output)
    assert code == 0, told
    assert "8 of 16 results are already measured" in told
    assert bench.computed() == [16, 25]
    assert bench.results() == ALL
    record = json.loads(bench.output.read_text())
    assert record["results"][: len(finished)] == finished
    assert not journal_path(bench.output).exists()


@pytest.mark.parametrize("place", [pytest.param("machine", marks=SLOW), 16])
def test_running_output_is_refused_with_its_process(bench, place):
    process = bench.wait_at(place)
    for arguments in ((), ("--resume", bench.output)):
        code, told = bench.run(*arguments)
        assert code == 2, told
        assert f"out.json is being written by process {process.pid} on " in told
        assert bench.computed() == []
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert bench.run(*(["--resume", bench.output] if place == 16 else []))[0] == 0
    assert bench.results() == ALL
    assert sorted(os.listdir(bench.folder)) == ["config.yaml", "log", "out.json"]


@pytest.mark.parametrize(
    ("number", "fresh"), [pytest.param(signal.SIGINT, True, marks=SLOW), (signal.SIGTERM, False)]
)
def test_interrupted_it_exits_130_and_goes_on_from_its_report(bench, number, fresh):
    code, told = bench.stop_at(16, number, fresh=fresh)
    assert code == 130, told
    kept = f"the report has the finished results; --resume {bench.output} continues the run"
    assert told.endswith(f"losscli: interrupted; {kept}\n")
    assert bench.results() == [k for k in ALL if k[0] in (4, 9)]
    assert bench.run("--resume", bench.output)[0] == 0
    assert bench.computed() == [16, 25]
    assert bench.results() == ALL


@SLOW
def test_saved_run_is_resumed_by_its_name_or_the_output_that_it_has(bench):
    bench.stop_at(9, signal.SIGKILL, "--save", "base")
    code, told = bench.run("--save", "base", "--resume", "base")
    assert code == 2
    assert "no run 'base'." in told
    assert "is found by the path of its -o: --resume PATH.\n" in told
    assert bench.run("--save", "base", "--resume", bench.output)[0] == 0
    assert bench.computed() == [9, 16, 25]
    assert os.listdir(bench.folder / "runs") == ["base.jsonl"]
    bench.output = Path("-")
    bench.stop_at(9, signal.SIGKILL, "--save", "other")
    assert bench.run("--save", "other", "--resume", "other")[0] == 0
    assert bench.computed() == [9, 16, 25]
    header, *results = (bench.folder / "runs/other.jsonl").read_text().splitlines()
    assert [key(json.loads(line)) for line in results] == ALL
    assert json.loads(header)["kind"] == "bench"


@pytest.mark.parametrize(
    "phase", [p if p == "report" else pytest.param(p, marks=SLOW) for p in killable.PHASES]
)
def test_an_interrupt_exits_130_in_every_phase(bench, phase):
    code, told = bench.stop_at(phase, signal.SIGTERM)
    assert code == 130
    assert told.splitlines()[-1].startswith("losscli: interrupted")
    assert "Traceback" not in told
    if phase == "report":  # all was measured, and nothing of it is lost
        assert [key(record) for record in bench.journal()] == ALL


@pytest.fixture
def cut_short(bench, monkeypatch, capsys):
    """Return a function that resumes a run whose journal has one case."""
    monkeypatch.setitem(IMPLEMENTATIONS, "theirs", replace(REFERENCE, name="theirs"))
    monkeypatch.setattr(limit.Limits.__init__, "__defaults__", (killable.refuse,))

    def losscli(*arguments):
        given = ["-c", bench.config, "--device", "cpu", "-o", bench.output, *arguments]
        return main.run(["bench", *map(str, given)])

    assert losscli("--format", "jsonl") == 0
    lines = bench.output.read_text().splitlines(keepends=True)
    journal = journal_path(bench.output)

    def resume(*arguments, **changes):
        header = json.loads(lines[0])
        header["environment"] |= changes
        journal.write_text("".join([json.dumps(header) + "\n", *lines[1:5]]))
        capsys.readouterr()
        code = losscli("--format", "json", "--resume", bench.output, *arguments)
        left = len(bench.journal()) if journal.exists() else None
        return code, left, capsys.readouterr().err

    return resume


def test_resuming_a_complete_run_only_reports_it(bench, cut_short, monkeypatch):
    assert cut_short()[0] == 0
    monkeypatch.setattr("losscli.bench.runner.Runner.run", None)
    whole = bench.output.read_text()
    arguments = ["-c", bench.config, "--device", "cpu", "--format", "json", "-o", bench.output]
    assert main.run(["bench", *map(str, arguments), "--resume", str(bench.output)]) == 0
    assert json.loads(bench.output.read_text())["results"] == json.loads(whole)["results"]


def test_resume_with_another_config_is_refused_and_keeps_the_journal(cut_short):
    for other in ("--size=4", "--max-time=2ms", "--impl=reference", "--seed=1"):
        code, left, told = cut_short(other)
        assert (code, left) == (2, 4)
        assert "out.json.journal.jsonl has another config: it was begun by `losscli" in told


def test_resume_on_another_machine_or_build_is_refused(cut_short):
    for fact in ("cpu", "threads", "torch", "losscli", "C++ compiler", "commit"):
        code, left, told = cut_short(**{fact.removeprefix("C++ "): "other"})
        assert (code, left) == (2, 4)
        different = f"cannot be resumed here: different {fact}: other, then "
        assert different in told.replace("CPU: other", "cpu: other")
        assert "Resume it with those, or start a new run with another -o or --save." in told
    code, left, told = cut_short(python="3.11.0")  # which leaves the kernels the same
    assert (code, left) == (0, None)
    assert "losscli: changed since the run began: Python: 3.11.0, then " in told


def task(passes=("forward", "forward_backward"), **changes):
    return Task(case(), dict.fromkeys(passes, ("reference", "custom")), Timing(), **changes)


def test_a_pass_is_finished_when_each_implementation_has_a_result():
    done = [result("reference"), result("custom"), result("reference", "forward_backward")]
    left, kept = remaining([task()], done)
    assert left == [task(["forward_backward"])]
    assert kept == done[:2]


def test_cases_with_equal_names_differ_by_table_and_inputs():
    done = [result("reference", table="one"), result("custom", table="one")]
    forward = [task(["forward"], table=title) for title in ("one", "two")]
    assert remaining(forward, done) == (forward[1:], done)
    seeded = Task(case(seed=1), forward[0].passes, Timing(), table="one")
    assert remaining([seeded], done) == ([seeded], [])


def test_plan_id_covers_cases_passes_and_timing():
    other = Task(case(), task().passes, Timing(cache="warm"))
    assert len({plan_id(tasks) for tasks in ([task()], [other], [task(), task()], [])}) == 4
    assert plan_id([task()]) == plan_id([task()])
    assert running.begin("bench", "cpu", plan=plan_id([task()])).plan == plan_id([task()])
    assert json.loads(render(made(result("reference")), "json"))["plan"] == ""
