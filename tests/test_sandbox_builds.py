import importlib.util
import os
from pathlib import Path

import msgspec
import pytest
import torch

from losscli.cases.case import Case
from losscli.implementations.allowance import Allowance
from losscli.implementations.builtin import of_file
from losscli.implementations.errors import SubjectError
from losscli.implementations.requests import Forward
from losscli.implementations.sandbox import scratch
from losscli.implementations.sandbox.client import Worker
from losscli.implementations.sandbox.wire import Replied, Tunes
from losscli.implementations.source import Source
from losscli.implementations.subject import bind, share_build, workers
from losscli.judge.job import Job
from losscli.judge.judging import judge_job
from losscli.processes.lock import LOCK
from losscli.truth.problem import Problem

BUILDS = """
import os
from pathlib import Path
from torch.nn import functional

FOLDER = os.environ["TORCH_EXTENSIONS_DIR"]
FOUND = os.path.exists(FOLDER + "/own/compiled.so")
if not FOUND:
    os.makedirs(FOLDER + "/own")
    with open(FOLDER + "/own/compiled.so", "wb") as file:
        file.write(bytes(1000))

def mse_loss(input, target, *, reduction="mean"):
    if not FOUND:
        raise RuntimeError("compiled anew")
    return functional.mse_loss(input, target, reduction=reduction)
"""


def test_files_come_back_with_their_contents_modes_and_times(tmp_path):
    made = tmp_path / "one" / scratch.FOLDER / "py" / "own.so"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"\x00compiled")
    made.chmod(0o700)
    os.utime(made, ns=(1_234_567_890_123_456_789,) * 2)
    scratch.unpack(scratch.pack(str(tmp_path / "one")), str(tmp_path / "two"))
    found = tmp_path / "two" / scratch.FOLDER / "py" / "own.so"
    assert found.read_bytes() == b"\x00compiled"
    assert found.stat().st_mode == made.stat().st_mode
    assert found.stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_locks_are_not_carried_and_a_full_disk_is_no_failure(tmp_path):
    made = tmp_path / "one" / scratch.FOLDER / "py"
    made.mkdir(parents=True)
    (made / "own.so").write_bytes(b"compiled")
    (made / scratch.LOCK).touch()
    (tmp_path / "full").touch()
    scratch.unpack(scratch.pack(str(tmp_path / "one")), str(tmp_path / "two"))
    scratch.unpack(scratch.pack(str(tmp_path / "one")), str(tmp_path / "full"))
    assert [each.name for each in (tmp_path / "two").rglob("*.*")] == ["own.so"]
    assert not list((tmp_path / "two").rglob(scratch.LOCK))


def test_nothing_is_carried_where_there_is_nothing_or_too_much(tmp_path):
    folder = tmp_path / scratch.FOLDER
    folder.mkdir()
    assert scratch.pack(str(tmp_path)) == b""
    with (folder / "large").open("wb") as file:
        file.truncate(scratch.MOST_BYTES + 1)
    assert scratch.pack(str(tmp_path)) == b""


def test_the_next_worker_of_a_file_has_what_the_first_has_compiled(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(BUILDS)
    case = Case("mse", (2, 3), (2, 3), "float32", "mean", "cpu", {}, "normal", 0)
    problem, implementation = Problem.of(case), of_file(Source.read(str(path)))
    assert implementation.file
    with pytest.raises(SubjectError, match="compiled anew"):
        bind(implementation, case).send(Forward(problem.operands))
    built = share_build(implementation, "cpu")
    workers.end(implementation.file)
    loss = bind(built, case).send(Forward(problem.operands))
    Path(built.setting.built).unlink()
    workers.end(implementation.file)
    assert torch.isfinite(loss)
    assert [path.name for path in scratch.scratch_directory().iterdir()] == [LOCK]


TUNER = """
class Autotuner:
    def __init__(self):
        self.known = set()

    def run(self, key):
        if key not in self.known:
            self.known.add(key)
            self._bench(key)

    def _bench(self, key):
        import time

        time.sleep(SECONDS)
"""
KERNEL = """
from torch.nn import functional
from triton.runtime.autotuner import Autotuner

tuner, calls = Autotuner(), []

def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    calls.append(1)
    tuner.run(KEY)
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
"""


@pytest.fixture
def judged(tmp_path):
    """Judge a file beside which a package lies that has the name and the method of Triton's."""
    if importlib.util.find_spec("triton"):
        pytest.skip("Triton itself is installed")

    def judge(key, seconds, *, timed=False, **limits):
        folder = tmp_path / "triton" / "runtime"
        folder.mkdir(parents=True)
        for place in (folder, folder.parent):
            (place / "__init__.py").touch()
        (folder / "autotuner.py").write_text(TUNER.replace("SECONDS", str(seconds)))
        path = tmp_path / "kernel.py"
        path.write_text(KERNEL.replace("KEY", key))
        limit = Allowance(**limits)
        return judge_job(Job(str(path), device="cpu", quick=True, timed=timed, limits=limit))

    return judge


@pytest.mark.slow  # sleeps
def test_tuning_may_take_longer_than_a_call_and_is_told(judged):
    verdict = judged("1", 4.0, call_seconds=3.0)
    assert verdict.right, verdict.reasons
    assert verdict.languages == ("Triton (not installed)",)
    assert 4.0 <= verdict.seconds["tuning"] < 5.0


def test_tuning_has_a_limit(judged):
    verdict = judged("1", 60.0, tuning_seconds=1.0)
    assert (verdict.word, verdict.reasons[0].code) == ("HANGS", "timeout")


@pytest.mark.slow  # measures
def test_samples_in_which_a_kernel_is_tuned_do_not_count(judged):
    verdict = judged("len(calls) if input.shape == (1024, 1024) else 1", 0.0, timed=True)
    (reason, *_) = verdict.reasons
    assert (verdict.word, reason.code) == ("CHEATS", "timing_tampering")
    assert "tunes a kernel between samples" in reason.text


LANGUAGES = {
    "import triton.language as tl\nfrom triton import jit": ["Triton"],
    "import helion\nimport helion.language as hl": ["Helion"],
    "from cutlass import cute": ["CuTe DSL"],
    "def f():\n    import tilelang": ["TileLang"],
    "from . import triton\nimport tritonic": [],
}


def test_languages_are_known_by_what_a_file_imports():
    for source, languages in LANGUAGES.items():
        file = Source("k.py", Path("k.py"), "", "", source.encode())
        assert [each.partition(" (")[0] for each in file.languages] == languages


def test_each_process_of_a_question_may_say_that_it_tunes(monkeypatch):
    replies = [Tunes(7), Tunes(7), Replied(7, msgspec.Raw(b"3"))]
    worker = object.__new__(Worker)
    worker.allowance = Allowance()
    monkeypatch.setattr(worker, "_reply", lambda seconds: replies.pop(0))
    assert worker._answer(7, 1.0) == Replied(7, msgspec.Raw(b"3"))
    assert worker.tuned
