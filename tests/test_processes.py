import math
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path, PosixPath
from typing import IO

import pytest

from losscli.doctor import questions
from losscli.errors import UnfitError
from losscli.machine import kernel_files
from losscli.machine.own_processes import children
from losscli.processes import Channel, Process, how_ended
from losscli.processes.lock import locked
from losscli.processes.process import kill_all

ECHO = """
import os, sys
from losscli.errors import UnfitError
from losscli.processes import to_parent
with to_parent() as channel:
    print("printed")
    os.write(1, b"written\\n")
    channel.put(sys.stdin.read())
    for value in channel:
        channel.put(value)
"""
BUSY = """
import time
from pathlib import Path, PosixPath
from losscli.errors import UnfitError
from losscli.processes import to_parent
with to_parent() as channel:
    channel.send(b"busy")
    time.sleep(60)
"""
PARENT = f"""
import os, sys
from losscli.errors import UnfitError
from losscli.processes import Process
process = Process([sys.executable, "-c", {BUSY!r}])
process.channel.receive()
os.write(1, str(process.pid).encode())
os.kill(os.getpid(), 9)
"""


def test_printed_text_goes_to_standard_error_not_into_the_channel(capfd):
    with Process([sys.executable, "-c", ECHO]) as process:
        values = iter(process.channel)
        assert next(values) == ""
        for value in ("line\nline", math.inf, b"x" * 2**22):
            process.channel.put(value)
            assert next(values) == value
    written = capfd.readouterr()
    assert written.out == ""
    assert sorted(written.err.split()) == ["printed", "written"]


def test_process_of_a_command_without_standard_error_prints_nowhere():
    text = f"""
import sys
from losscli.processes import Process
with Process([sys.executable, "-c", {ECHO!r}]) as process:
    values = iter(process.channel)
    next(values)
    process.channel.put("back")
    print(next(values, None))
"""
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, text]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"back\n"


def test_all_processes_that_have_not_ended_are_killed_at_once():
    commands = ([sys.executable, "-c", text] for text in (ECHO, BUSY))
    with Process(next(commands)) as ended, Process(next(commands)) as one:
        ended.channel.socket.close()
        assert ended.end(20) == 0
        kill_all()
        assert one.end(20) == -signal.SIGKILL
        assert ended.end() == 0
        kill_all()  # nothing is left, whose number may be another's by now


def test_files_in_the_folder_of_the_command_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')\n")
    (tmp_path / "msgspec.py").write_text("raise SystemExit('hijacked')\n")
    monkeypatch.chdir(tmp_path)
    assert "gpus" in questions.ask("driver")


def test_busy_process_dies_with_a_parent_that_is_killed(tmp_path):
    with open(tmp_path / "pid", "w+b") as told:
        with Process([sys.executable, "-c", PARENT], errors=told.fileno()) as parent:
            assert parent.end(60) == -signal.SIGKILL
        told.seek(0)
        pid = int(told.read())
    limit = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < limit:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")


STOPS = """
import os, signal
from losscli.processes import to_parent
with to_parent() as channel:
    os.kill(os.getpid(), signal.SIGSTOP)
    channel.put("went on")
"""


def test_process_that_was_stopped_goes_on_while_it_is_waited_for(monkeypatch):
    monkeypatch.setattr("losscli.processes.channel.STOPPED_SECONDS", 0.05)
    with Process([sys.executable, "-c", STOPS]) as process:
        assert next(iter(process.channel)) == "went on"


def test_end_of_a_process_is_the_end_of_its_messages():
    with Process([sys.executable, "-c", "import time; time.sleep(0.1); exit(3)"]) as process:
        process.channel.send(b"never read")
        assert process.channel.receive() is None
        assert process.end(20) == 3


def test_processes_that_a_process_started_are_killed_with_it():
    fork = "import os, time; print(os.fork(), flush=True); time.sleep(60)"
    reading, writing = os.pipe()
    with Process([sys.executable, "-c", fork], errors=writing) as process:
        os.close(writing)
        assert os.read(reading, 1)
    assert process.end() == -signal.SIGKILL
    with open(reading, "rb") as told:  # until the last that can write has ended
        told.read()


def test_silence_and_long_messages_are_errors():
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs:
        with pytest.raises(TimeoutError):
            channel.receive(0.01)
        theirs.sendall(struct.pack("=I", 2**32 - 1))
        with pytest.raises(ValueError, match="a message of 4294967295 bytes"):
            channel.receive()


@pytest.fixture
def ends():
    one, other = map(Channel, socket.socketpair())
    with one, other:
        yield one, other


def put_each(channel, values):
    with channel.answer():
        for value in values:
            channel.put(value)


def test_answers_end_with_none_or_an_exception(ends):
    one, other = ends

    def fails():
        yield "first"
        raise UnfitError("no memory")

    put_each(one, [1, 2])
    put_each(one, fails())
    assert list(other.each()) == [1, 2]
    answers = other.each()
    assert next(answers) == "first"
    with pytest.raises(UnfitError, match="no memory") as raised:
        next(answers)
    assert "in fails" in raised.value.__notes__[0]


def test_exception_that_cannot_be_sent_is_named(ends):
    one, other = ends
    put_each(one, map(int, ["1", "x"]))
    with pytest.raises(ValueError, match="invalid literal"):
        list(other.each())

    class LocalError(Exception):
        pass

    def fails():
        yield 1
        raise LocalError("odd")

    put_each(one, fails())
    with pytest.raises(RuntimeError, match="LocalError: odd"):
        list(other.each())


def test_answers_that_break_off_are_no_answers(ends):
    one, other = ends
    one.put(1)
    one.socket.close()
    with pytest.raises(EOFError):
        list(other.each())


def test_end_of_a_process_is_told_by_code_or_signal():
    found = [how_ended(code) for code in (3, -11, -99)]
    assert found == ["with exit code 3", "by SIGSEGV", "by signal 99"]


class Older(PosixPath):
    """Files of a kernel that lists no children."""

    def glob(self, pattern):
        return super().glob(pattern.replace("children", "nothing"))


class Ended(PosixPath):
    """Files of a process that ends while they are listed: Python raises."""

    def glob(self, pattern):
        if "children" in pattern:
            raise FileNotFoundError
        return super().glob(pattern)


@pytest.mark.parametrize("files", [Path, Older, Ended])
def test_children_are_those_that_this_process_has_begun(files, monkeypatch):
    monkeypatch.setattr(kernel_files, "PROC", files("/proc"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        assert children(child.pid) == []
    assert child.pid not in children(os.getpid())


class Clock:
    """A clock that advances only by sleeping; something may happen after a sleep."""

    def __init__(self, due: float = math.inf, event: Callable[[], None] = lambda: None) -> None:
        self.now, self.due, self.event = 0.0, due, event

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.due:
            self.event()


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


@pytest.fixture
def notes():
    return []


def opened(path: Path) -> IO[str]:
    return open(path, "a+", encoding="utf-8")


def test_free_lock_is_taken_silently(lock, notes):
    clock = Clock()
    with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
        assert str(os.getpid()) in lock.read_text()
    assert notes == []
    assert clock.now == 0
    assert lock.read_text() == ""


@pytest.fixture
def told_of_holder(lock, notes):
    """Return a function that has a lock held for so long, and returns what the next is told."""

    def wait(seconds: float, named: str | None = None) -> list[str]:
        with ExitStack() as holder:
            locked_file = holder.enter_context(opened(lock))
            holder.enter_context(locked(locked_file, lambda note: None))
            if named:
                lock.write_text(named)
            clock = Clock(seconds, holder.close)
            with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
                assert clock.now >= seconds
        return notes

    return wait


def test_only_a_wait_of_a_second_names_the_holder(told_of_holder, notes):
    assert told_of_holder(0.5) == []
    (note,) = told_of_holder(5.0)
    assert note.startswith(f"waiting for process {os.getpid()} on {socket.gethostname()} (since ")
    notes.clear()
    (note,) = told_of_holder(2.0, "half a rec")  # whose name cannot be read
    assert note.startswith(f"waiting for process {os.getpid()} (")


def test_holder_that_nobody_knows_is_another_process(told_of_holder, monkeypatch, tmp_path):
    monkeypatch.setattr("losscli.processes.lock._PROC", tmp_path)
    assert told_of_holder(2.0, "half a rec") == ["waiting for another process to finish building"]


def test_lock_of_a_dead_process_or_after_an_exception_does_not_block(lock, notes):
    lock.write_text('{"pid": 1, "host": "gone", "since": "00:00:00"}')
    with opened(lock) as file, locked(file, notes.append):
        assert "gone" not in lock.read_text()
    with pytest.raises(KeyboardInterrupt), opened(lock) as file, locked(file, notes.append):
        raise KeyboardInterrupt
    with opened(lock) as file, locked(file, notes.append):
        pass
    assert notes == []
