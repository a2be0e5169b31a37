"""Tuning counts as building: it may take longer than a call, is told, and is no part of samples."""

import importlib.util
from pathlib import Path

import msgspec
import pytest

from losscli.implementations.allowance import Allowance
from losscli.implementations.sandbox.messages import Replied, Tunes
from losscli.implementations.sandbox.process import Worker
from losscli.implementations.source import Source
from losscli.judge.job import Job
from losscli.judge.stages import judge_job

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
    assert (verdict.word, reason.code) == ("CHEATS", "clock_disagrees")
    assert "tunes a kernel between samples" in reason.text


@pytest.mark.parametrize(
    ("source", "languages"),
    [
        ("import triton.language as tl\nfrom triton import jit", ["Triton"]),
        ("import helion\nimport helion.language as hl", ["Helion"]),
        ("from cutlass import cute", ["CuTe DSL"]),
        ("def f():\n    import tilelang", ["TileLang"]),
        ("from . import triton\nimport tritonic", []),
    ],
)
def test_languages_are_known_by_what_a_file_imports(source, languages):
    file = Source("k.py", Path("k.py"), "", "", source.encode())
    assert [each.partition(" (")[0] for each in file.languages] == languages


def test_each_process_of_a_question_may_say_that_it_tunes(monkeypatch):
    replies = [Tunes(7), Tunes(7), Replied(7, msgspec.Raw(b"3"))]
    worker = object.__new__(Worker)
    worker.allowance = Allowance()
    monkeypatch.setattr(worker, "_reply", lambda seconds: replies.pop(0))

    assert worker._answer(7, 1.0) == Replied(7, msgspec.Raw(b"3"))
    assert worker.tuned
