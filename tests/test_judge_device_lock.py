"""One judge times a device at a time; others that build or check wait meanwhile."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from losscli.errors import UnfitError
from losscli.judge.device_lock import device_lock, lock_path

HOLD = """
import sys
from losscli.judge.device_lock import device_lock
with device_lock(sys.argv[1], shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path))


@pytest.fixture
def hold():
    """Return a function that has another process hold the lock of a device."""
    holders = []

    def start(device="cpu", mode="alone"):
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, device, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        holders.append(holder)
        assert holder.stdout.readline() == "held\n"
        return holder

    yield start
    for holder in holders:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()


class _StopError(Exception):
    pass


def is_free(device="cpu", *, shared=False):
    """Tell whether the lock is to be had at once."""

    def refuse(seconds):
        raise _StopError

    try:
        with device_lock(device, shared=shared, sleep=refuse):
            return True
    except _StopError:
        return False


def test_lock_is_held_alone(hold):
    hold()
    assert not is_free()
    assert not is_free(shared=True)


def test_shared_lock_lets_others_share_and_nobody_time(hold):
    hold(mode="shared")
    assert is_free(shared=True)
    assert not is_free()


def test_devices_have_locks_of_their_own(hold):
    hold("cuda:0")
    assert is_free("cuda:1")
    assert is_free("cpu")
    assert not is_free("cuda:0")


def test_lock_is_free_after_its_block():
    with device_lock("cpu"):
        pass
    assert is_free()


def test_lock_of_a_killed_process_is_free(hold):
    hold().send_signal(signal.SIGKILL)
    with device_lock("cpu"):
        pass


def test_whoever_waits_to_time_goes_before_others_that_share(hold):
    sharing = hold(mode="shared")
    timing = threading.Event()

    def time_it():
        with device_lock("cpu"):
            timing.set()

    thread = threading.Thread(target=time_it)
    thread.start()
    while is_free(shared=True):  # until it waits at the turnstile
        time.sleep(0.01)
    assert not timing.is_set()
    sharing.stdin.close()
    thread.join(20)
    assert timing.is_set()


def test_wait_is_told_once_and_measured(hold):
    holder = hold()
    now, notes = [0.0], []

    def sleep(seconds):
        now[0] += 1
        if now[0] == 20:
            holder.kill()
            holder.wait()

    with device_lock("cpu", notify=notes.append, clock=lambda: now[0], sleep=sleep) as waited:
        assert waited >= 20
    assert notes == ["waiting for the timing of another kernel on cpu to finish"]


def test_child_that_was_forked_does_not_keep_the_lock():
    with device_lock("cpu"):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
    try:
        assert is_free()
    finally:
        child.kill()
        child.join()


def test_folder_that_cannot_be_written_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(UnfitError, match=r"cannot write .* LOSSCLI_CACHE_DIR"), device_lock("cpu"):
        pass


def test_lock_has_the_host_in_its_name():
    assert lock_path("cpu").name == f"{os.uname().nodename}-cpu.lock"
