"""One judge times a device at a time; others that build or check wait meanwhile."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from losscli.errors import UnfitError
from losscli.implementations.allowance import Allowance
from losscli.judge import judging as judge
from losscli.judge.device_lock import device_lock, lock_path
from losscli.judge.job import Job
from losscli.judge.judgement import Draft, Ended
from losscli.judge.judging import judge_job
from losscli.processes.lock import HeldError

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

    def start(device="cpu", mode="alone", program=HOLD):
        holder = subprocess.Popen(
            [sys.executable, "-c", program, device, mode],
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


def test_lock_of_a_device_is_held_alone_until_its_process_ends(hold):
    holder = hold("cuda:0")
    assert not is_free("cuda:0")
    assert not is_free("cuda:0", shared=True)
    assert is_free("cuda:1")
    assert is_free("cpu")
    holder.send_signal(signal.SIGKILL)
    with device_lock("cuda:0"):
        pass
    assert is_free("cuda:0")


def test_shared_lock_lets_others_share_until_one_waits_to_time(hold):
    sharing = hold(mode="shared")
    assert is_free(shared=True)
    assert not is_free()
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
    (note,) = notes
    assert re.fullmatch(
        rf"waiting for process {holder.pid} on \S+ \(since .*\), which has the lock of cpu", note
    )


READER = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def reader(hold):
    """Return a process that has the lock, though it may only read its file."""
    with device_lock("cpu"):
        pass
    return hold(str(lock_path("cpu")), program=READER)


def test_wait_ends_with_its_time_and_names_who_has_the_lock(hold):
    holder = hold()
    now = [0.0]

    def sleep(seconds):
        now[0] += 1

    named = rf"process {holder.pid} on .* holds the lock"
    wait = partial(device_lock, "cpu", clock=lambda: now[0], sleep=sleep)
    for shared, until in ((False, 100.0), (True, 200.0)):
        with pytest.raises(HeldError, match=named), wait(shared=shared, until=until):
            pass
        assert now[0] == until
    holder.kill()
    holder.wait()
    assert is_free()


def test_holder_that_does_not_say_its_name_is_found_and_may_wait_for_us(reader):
    named = rf"process {reader.pid} \(python.*\) holds the lock"
    with pytest.raises(HeldError, match=named), device_lock("cpu", until=0.0):
        pass
    waits = partial(device_lock, "cpu", waits_for_us=lambda pid: pid == reader.pid)
    with pytest.raises(HeldError) as caught, waits():
        pass
    assert caught.value.waits_for_us


def test_other_users_cannot_open_a_lock(tmp_path):
    folder = tmp_path / "locks"
    folder.mkdir(mode=0o755)
    lock_path("cpu").touch(mode=0o644)
    with device_lock("cpu"):
        pass
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [
        *(0o700, 0o600, 0o600)
    ]


def test_link_in_place_of_a_lock_is_not_followed(tmp_path):
    (tmp_path / "locks").mkdir(mode=0o700)
    lock_path("cpu").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnfitError, match=r"cannot write .*-cpu\.lock"), device_lock("cpu"):
        pass
    assert not (tmp_path / "elsewhere").exists()


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
    assert lock_path("cpu").name == f"{os.uname().nodename}-cpu.lock"
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(UnfitError, match=r"cannot write .* LOSSCLI_CACHE_DIR"), device_lock("cpu"):
        pass


@pytest.fixture
def judged(tmp_path):
    """Return a function that judges a file, which may take as long as it is told."""
    path = tmp_path / "k.py"
    path.write_text("def mse_loss(input, target):\n    return (input - target).mean()\n")

    def judge(**limits):
        job = Job(str(path), loss="mse", device="cpu", timed=False, limits=Allowance(**limits))
        return judge_job(job)

    return judge


def test_file_is_not_judged_where_others_have_the_device_until_its_time_is_over(hold, judged):
    holder = hold()
    verdict = judged(total_seconds=0.0)
    (reason,) = verdict.reasons
    assert (verdict.word, reason.code) == ("NOT JUDGED", "busy")
    assert re.match(
        rf"waited 0 s for cpu, whose lock process {holder.pid} on .* has; ", reason.text
    )
    assert "longer --timeout" in verdict.feedback


def test_file_that_takes_the_lock_itself_cheats(reader, judged, monkeypatch):
    monkeypatch.setattr(judge, "is_of_a_worker", lambda pid: pid == reader.pid)
    verdict = judged()
    assert (verdict.word, [each.code for each in verdict.reasons]) == ("CHEATS", ["interference"])


def test_wait_for_others_is_not_held_against_a_file():
    over = time.monotonic() - 5.0
    for waited, code in ((0.0, "timeout"), (10.0, "busy")):
        judging: Any = SimpleNamespace(
            over=over, waited=waited, device="cpu", job=Job(""), draft=Draft()
        )
        with pytest.raises(Ended):
            judge.Judging.check_time(judging)
        assert [each.code for each in judging.draft.reasons] == [code]
