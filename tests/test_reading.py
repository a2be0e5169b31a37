"""Files that a user names: read up to a limit, and no device without an end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from losscli import reading
from losscli.config.loader import load_config
from losscli.errors import ConfigError, UsageError
from losscli.implementations.source import Source
from losscli.judge.batch import read_finished
from losscli.judge.jobs import lines_of
from losscli.runs.reading import read_run

NAMED_DEVICE = "it is neither a file nor a pipe"


def test_file_of_as_many_bytes_as_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 16)
    assert reading.read_bytes(path, 4096) == path.read_bytes()

    with path.open("ab") as file:
        file.write(b".")
    with pytest.raises(OSError, match=r"larger than 4\.0 KiB"):
        reading.read_bytes(path, 4096)


@pytest.mark.parametrize("size", [0, 1, 2**20, 3 * 2**20 + 1])
def test_pipe_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    content = os.urandom(size)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    assert reading.read_bytes(path, 2**22) == content
    writer.join()


def test_pipe_without_an_end_is_read_up_to_the_limit() -> None:
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        assert endless.stdout
        with pytest.raises(OSError, match=r"larger than 2\.0 MiB"):
            reading.read_bytes(f"/dev/fd/{endless.stdout.fileno()}", 2**21)
        endless.kill()


def test_file_that_grows_meanwhile_is_read_whole(tmp_path: Path, monkeypatch) -> None:
    """The journal of a run that is writing it may end so."""
    path = tmp_path / "journal"
    path.write_bytes(b"one\n")
    found = os.fstat

    def grown(descriptor: int) -> os.stat_result:
        before = found(descriptor)
        with path.open("ab") as file:
            file.write(b"two\nthree\n")
        return before

    monkeypatch.setattr(os, "fstat", grown)
    assert reading.read_bytes(path, 100) == b"one\ntwo\nthree\n"


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda path: read_run(path, "bench"), UsageError),
        (lambda path: load_config(str(path), {}), ConfigError),
        (lambda path: read_finished(path), UsageError),
    ],
    ids=["a record", "a config", "an output of judge"],
)
def test_device_is_refused_by_every_reader(read, error: type[Exception]) -> None:
    with pytest.raises(error, match=NAMED_DEVICE):
        read(Path("/dev/zero"))


def test_device_that_is_called_as_a_source_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=NAMED_DEVICE):
        Source.read(str(path))


def test_jobs_without_an_end_of_line_are_refused() -> None:
    zeros = os.open("/dev/zero", os.O_RDONLY)
    with pytest.raises(UsageError, match=r"longer than 1\.0 MiB"):
        list(lines_of(zeros))
    os.close(zeros)


def test_compare_with_a_device_exits_2(tmp_path: Path) -> None:
    base = Path(__file__).parents[1] / "docs/results/h200-losses-bench.json"
    command = [sys.executable, "-m", "losscli", "compare", str(base), "/dev/zero"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"losscli: error: cannot read '/dev/zero': {NAMED_DEVICE}.\n"


def test_implementation_whose_path_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"kernel-\xff.py")
    path.write_text("def mse_loss(input, target): ...")
    with pytest.raises(UsageError, match="is not UTF-8 in this locale"):
        Source.read(str(path))
