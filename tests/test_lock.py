"""The build lock: one builder at a time, which others can name."""

import math
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from losscli.processes.lock import locked


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
