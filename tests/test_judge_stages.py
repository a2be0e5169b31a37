"""Judging one file: what its verdict follows from, in a process that judges several."""

from losscli.judge.job import Job
from losscli.judge.stages import judge_job

RIGHT = """
import torch

def mse_loss(input, target, *, reduction="mean"):
    return torch.nn.functional.mse_loss(input, target, reduction=reduction)
"""


def judged(path):
    return judge_job(Job(file=str(path), device="cpu", quick=True, timed=False))


def test_file_that_was_written_over_is_judged_anew(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(RIGHT.replace("return", "return 2 *"))
    before = judged(path)

    path.write_text(RIGHT)

    assert before.word == "WRONG"
    assert judged(path).right
