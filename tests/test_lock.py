"""The build lock: one builder at a time, which others can name."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from losscli.processes.lock import locked


class Clock:
    """A clock that advances only by sleeping; a test may act after a sleep."""

    def __init__(self, events: dict[float, object] | None = None) -> None:
        self.now = 0.0
        self.events = events or {}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for due in [when for when in self.events if when <= self.now]:
            self.events.pop(due)()  # type: ignore[operator]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def notes() -> list[str]:
    return []


def held(path: Path) -> Iterator[None]:
    """Hold the lock until the iterator is closed."""
    with opened(path) as file, locked(file, lambda note: None):
        yield


def opened(path: Path) -> IO[str]:
    return open(path, "a+", encoding="utf-8")


def test_free_lock_is_taken_silently(lock: Path, notes: list[str]) -> None:
    clock = Clock()
    with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
        assert str(os.getpid()) in lock.read_text()
    assert notes == []
    assert clock.now == 0
    assert lock.read_text() == ""


def test_wait_of_a_second_names_the_holder_once(lock: Path, notes: list[str]) -> None:
    holder = held(lock)
    next(holder)
    clock = Clock({5.0: holder.close})  # type: ignore[attr-defined]
    with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
        assert clock.now >= 5
    (note,) = notes
    assert note.startswith(f"waiting for process {os.getpid()} on {socket.gethostname()} (since ")


def test_a_short_wait_is_silent(lock: Path, notes: list[str]) -> None:
    holder = held(lock)
    next(holder)
    clock = Clock({0.5: holder.close})  # type: ignore[attr-defined]
    with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
        pass
    assert notes == []


def test_lock_of_a_dead_process_does_not_block(lock: Path, notes: list[str]) -> None:
    lock.write_text('{"pid": 1, "host": "gone", "since": "00:00:00"}')
    with opened(lock) as file, locked(file, notes.append):
        assert "gone" not in lock.read_text()
    assert notes == []


def test_holder_whose_name_cannot_be_read_has_a_number(lock: Path, notes: list[str]) -> None:
    holder = held(lock)
    next(holder)
    lock.write_text("half a rec")
    clock = Clock({2.0: holder.close})  # type: ignore[attr-defined]
    with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
        pass
    (note,) = notes
    assert note.startswith(f"waiting for process {os.getpid()} (")


def test_holder_that_nobody_knows_is_another_process(
    lock: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("losscli.processes.lock._PROC", tmp_path)
    holder = held(lock)
    next(holder)
    lock.write_text("half a rec")
    clock = Clock({2.0: holder.close})  # type: ignore[attr-defined]
    with opened(lock) as file, locked(file, notes.append, clock=clock, sleep=clock.sleep):
        pass
    assert notes == ["waiting for another process to finish building"]


def test_exception_releases_the_lock(lock: Path, notes: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt), opened(lock) as file, locked(file, notes.append):
        raise KeyboardInterrupt
    with opened(lock) as file, locked(file, notes.append):
        pass
    assert notes == []
