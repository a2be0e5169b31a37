"""Who ended where a worker has ended: the file, or a process of losscli; and nothing waits."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from losscli.implementations.errors import SandboxError
from losscli.implementations.sandbox import zygote
from losscli.implementations.sandbox.client import Worker
from losscli.implementations.sandbox.scratch import scratch_directory
from losscli.implementations.sandbox.worker_requests import TuningSeconds
from losscli.implementations.sandbox.zygote import is_of_a_worker
from losscli.implementations.source import Source
from losscli.implementations.subject import workers
from losscli.judge import first_look, judging
from losscli.judge.job import Job
from losscli.judge.judging import judge_job
from losscli.processes.lock import LOCK, claim_folder, remove_unclaimed
from losscli.reasons import Code

WRONG = """
def mse_loss(input, target):
    return (input - target).mean()
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(WRONG)
    return path


@pytest.fixture
def worker(path):
    worker = Worker(Source.read(str(path)), "cpu")
    yield worker
    worker.end()


def error_of(worker: Worker) -> SandboxError:
    """Ask until it has died, which takes a moment."""
    while True:
        try:
            worker.ask(TuningSeconds(), case=None)
        except SandboxError as error:
            return error


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_worker_that_is_killed_has_died_itself(worker):
    os.kill(child_of(worker.keeper), signal.SIGKILL)
    error = error_of(worker)
    assert (error.code, str(error)) == ("process_died", "its process ended by SIGKILL")


def test_signal_to_the_group_of_a_worker_does_not_reach_its_keeper(worker):
    os.killpg(child_of(worker.keeper), signal.SIGKILL)
    assert error_of(worker).code == Code.PROCESS_DIED


def test_worker_that_dies_beside_a_stopped_keeper_has_died_itself(worker):
    os.kill(worker.keeper, signal.SIGSTOP)
    os.kill(child_of(worker.keeper), signal.SIGKILL)
    assert error_of(worker).code == Code.PROCESS_DIED


@pytest.mark.parametrize("reached", [("session", "signals"), ("session",)])
def test_death_of_a_keeper_is_not_the_files(worker, reached):
    worker.reached = reached
    os.kill(worker.keeper, signal.SIGKILL)
    error = error_of(worker)
    assert error.code == Code.INTERRUPTED
    assert str(error).startswith("losscli's process that keeps the worker was killed, as when ")
    assert ("the file may have killed it" in str(error)) == ("signals" not in reached)


@pytest.mark.slow  # starts another, which imports torch
def test_zygote_that_was_killed_is_named_and_replaced(worker, path):
    killed = zygote.running().pid
    os.kill(killed, signal.SIGKILL)
    error = error_of(worker)
    assert error.code == Code.INTERRUPTED
    assert "that starts workers ended by SIGKILL" in str(error)
    another = Worker(Source.read(str(path)), "cpu")
    assert another.ask(TuningSeconds(), case=None) == 0
    another.end()
    assert zygote.running().pid != killed


def test_zygote_that_was_stopped_goes_on(worker, path):
    os.kill(zygote.running().pid, signal.SIGSTOP)
    another = Worker(Source.read(str(path)), "cpu")
    assert another.ask(TuningSeconds(), case=None) == 0
    another.end()


def test_processes_of_workers_are_known(worker):
    assert is_of_a_worker(child_of(worker.keeper))
    assert not is_of_a_worker(os.getpid())


def test_file_whose_keeper_is_killed_is_not_judged_and_the_next_one_is(path, monkeypatch):
    job = Job(file=str(path), device="cpu", quick=True, timed=False)

    def kill_and_look(on, case):
        keeper = workers.of(on.implementation, "cpu").keeper
        worker = os.pidfd_open(child_of(keeper))
        os.kill(keeper, signal.SIGKILL)
        select.select([worker], [], [])  # until it has ended
        os.close(worker)
        first_look.look_at(on, case)

    with monkeypatch.context() as patched:
        patched.setattr(judging, "look_at", kill_and_look)
        verdict = judge_job(job)
    assert (verdict.word, [each.code for each in verdict.reasons]) == (
        "NOT JUDGED",
        ["interrupted"],
    )
    assert judge_job(job).word == "WRONG"


CLAIMS = """
import sys
from pathlib import Path
from losscli.processes.lock import claim_folder
print(claim_folder(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_folder_of_another_judge_stays_until_that_ends(tmp_path):
    """Its number may be in no list of processes here: that of another container is not."""
    with subprocess.Popen(
        [sys.executable, "-c", CLAIMS, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        folder = Path(other.stdout.readline().strip())
        (folder / "compiled").touch()
        remove_unclaimed(tmp_path)
        assert sorted(path.name for path in folder.iterdir()) == ["compiled", LOCK]
        other.kill()
    remove_unclaimed(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_is_removed_while_it_is_claimed_is_made_again(tmp_path, monkeypatch):
    made = []

    def removing(**options):
        folder = tmp_path / f"judge-{len(made)}"
        folder.mkdir()
        made.append(folder)
        if len(made) == 1:  # before it has a lock
            remove_unclaimed(tmp_path)
        return str(folder)

    monkeypatch.setattr("tempfile.mkdtemp", removing)
    folder = claim_folder(tmp_path)
    assert (folder, len(made)) == (made[1], 2)
    remove_unclaimed(tmp_path)
    assert list(tmp_path.iterdir()) == [folder]


def test_each_cache_has_a_folder_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path))
    folder = scratch_directory()
    assert folder == scratch_directory()
    assert folder.parent == tmp_path / "scratch"
