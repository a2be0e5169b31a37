"""What a file has compiled is there in its next worker, and nowhere else."""

import os
from pathlib import Path

import pytest
import torch

from losscli.cases.case import Case
from losscli.implementations import remote
from losscli.implementations.builtin import of_file
from losscli.implementations.errors import SubjectError
from losscli.implementations.requests import Forward
from losscli.implementations.sandbox import builds
from losscli.implementations.sandbox.scratch import scratch_directory
from losscli.implementations.source import Source
from losscli.implementations.subject import bind
from losscli.processes.claims import LOCK
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
    made = tmp_path / "one" / builds.FOLDER / "py" / "own.so"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"\x00compiled")
    made.chmod(0o700)
    os.utime(made, ns=(1_234_567_890_123_456_789,) * 2)

    builds.unpack(builds.pack(str(tmp_path / "one")), str(tmp_path / "two"))

    found = tmp_path / "two" / builds.FOLDER / "py" / "own.so"
    assert found.read_bytes() == b"\x00compiled"
    assert found.stat().st_mode == made.stat().st_mode
    assert found.stat().st_mtime_ns == 1_234_567_890_123_456_789


def test_locks_are_not_carried_and_a_full_disk_is_no_failure(tmp_path):
    made = tmp_path / "one" / builds.FOLDER / "py"
    made.mkdir(parents=True)
    (made / "own.so").write_bytes(b"compiled")
    (made / builds.LOCK).touch()
    (tmp_path / "full").touch()

    builds.unpack(builds.pack(str(tmp_path / "one")), str(tmp_path / "two"))
    builds.unpack(builds.pack(str(tmp_path / "one")), str(tmp_path / "full"))

    assert [each.name for each in (tmp_path / "two").rglob("*.*")] == ["own.so"]
    assert not list((tmp_path / "two").rglob(builds.LOCK))


@pytest.mark.parametrize("size", [0, builds.MOST_BYTES + 1], ids=["nothing", "too much"])
def test_nothing_is_carried_where_there_is_nothing_or_too_much(tmp_path, size):
    folder = tmp_path / builds.FOLDER
    folder.mkdir()
    if size:
        with (folder / "large").open("wb") as file:
            file.truncate(size)

    assert builds.pack(str(tmp_path)) == b""


def test_the_next_worker_of_a_file_has_what_the_first_has_compiled(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(BUILDS)
    case = Case("mse", (2, 3), (2, 3), "float32", "mean", "cpu", {}, "normal", 0)
    problem, implementation = Problem.of(case), of_file(Source.read(str(path)))
    assert implementation.file

    with pytest.raises(SubjectError, match="compiled anew"):
        bind(implementation, case).send(Forward(problem.operands))
    built = remote.share_build(implementation, "cpu")
    remote.workers.end(implementation.file)

    loss = bind(built, case).send(Forward(problem.operands))

    Path(built.setting.built).unlink()
    remote.workers.end(implementation.file)
    assert torch.isfinite(loss)
    assert [path.name for path in scratch_directory().iterdir()] == [LOCK]
