import os
import subprocess
import threading
from pathlib import Path

import pytest

from losscli.cli import main
from losscli.config.loader import load_config
from losscli.errors import ConfigError, UsageError
from losscli.files import reading
from losscli.implementations.source import Source
from losscli.judge.batch import lines_of, read_finished
from losscli.runs.reading import read_run
from tests.documents import RESULTS

NAMED_DEVICE = "it is neither a file nor a pipe"


def test_file_of_as_many_bytes_as_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 16)
    assert reading.read_bytes(path, 4096) == path.read_bytes()
    with path.open("ab") as file:
        file.write(b".")
    with pytest.raises(OSError, match=r"larger than 4\.0 KiB"):
        reading.read_bytes(path, 4096)


def test_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    for size in (0, 1, 2**20, 3 * 2**20 + 1):
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


def test_device_is_refused_by_every_reader(tmp_path: Path, capsys) -> None:
    zeros, link = Path("/dev/zero"), tmp_path / "kernel.py"
    link.symlink_to(zeros)
    for read, error in (
        (lambda: read_run(zeros, "bench"), UsageError),
        (lambda: load_config(str(zeros), {}), ConfigError),
        (lambda: read_finished(zeros), UsageError),
        (lambda: Source.read(str(link)), UsageError),
    ):
        with pytest.raises(error, match=NAMED_DEVICE):
            read()
    descriptor = os.open(zeros, os.O_RDONLY)
    with pytest.raises(UsageError, match=r"longer than 1\.0 MiB"):
        list(lines_of(descriptor))
    os.close(descriptor)
    base = RESULTS / "h200-losses-bench.json"
    assert main.run(["compare", str(base), str(zeros)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"losscli: error: cannot read '/dev/zero': {NAMED_DEVICE}.\n"


def test_implementation_whose_path_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"kernel-\xff.py")
    path.write_text("def mse_loss(input, target): ...")
    with pytest.raises(UsageError, match="is not UTF-8 in this locale"):
        Source.read(str(path))
