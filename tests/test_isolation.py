"""Each wall of the sandbox holds against the attack on it, for root, for a user, in a container."""

import inspect
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from docs import program
from losscli.cli.main import run as command_line
from losscli.doctor import attacks, isolation
from losscli.doctor.attacks import ATTACKS
from losscli.doctor.isolation import HELD, NOT_HELD, NOT_THERE, Siege, Tried, besiege, set_up
from losscli.implementations.sandbox.confinement import limits
from losscli.implementations.sandbox.isolation_parts import NAMES, PARTS
from losscli.judge.selftest import root as candidates_root
from losscli.render.text import text
from losscli.views import doctor
from tests.documents import ROOT
from tests.modes import AS_IT_IS, CONTAINER, MODES
from tests.parameters import naming

OF_ROOT = (
    *("change kernel settings", "make a file in /dev", "open a device"),
    *("hold a capability", "rename the host"),
)
"""Attacks at which a user fails without any wall."""


def test_each_wall_holds():
    examine(besiege("cpu").to_json())


def run_in(mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on a machine of another kind."""
    command = [sys.executable, "-m", "tests.modes", mode, sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != AS_IT_IS])
def test_each_wall_holds_on_other_machines(mode):
    done = run_in(mode, "-m", "losscli", "doctor", "--isolation", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    examine(json.loads(done.stdout), apart=mode != CONTAINER)


def examine(found: dict[str, Any], *, apart: bool = True) -> None:
    """Look at what came of all attacks; ``apart``: in namespaces."""
    reached = {*found["reached"]}
    for tried in found["results"]:
        with naming(tried["tries"]):
            expected = {HELD} if tried["part"] in reached else {HELD, NOT_THERE}
            assert tried["state"] in expected, tried["how"]
    if "files" not in reached or "system calls" not in reached:
        pytest.skip("this machine lacks Landlock or filters of seccomp")
    if apart and "processes" not in reached:
        pytest.skip("this machine refuses namespaces")
    assert reached == {part.name for part in PARTS if part.without or apart}


KILLED = """
import os, sys
from pathlib import Path
from losscli.implementations.source import Source
from losscli.implementations.sandbox.client import Worker

SOURCE = '''
import ctypes, os, signal
ctypes.CDLL(None).prctl(1, 0)  # to outlive what keeps it
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        signal.pause()
'''
path = Path(sys.argv[1])
worker = Worker(Source("k.py", path, "", "", SOURCE.encode()), "cpu")
children = Path(f"/proc/{worker.keeper}/task/{worker.keeper}/children").read_text().split()
(pid,) = children or ["0"]
below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
print(worker.keeper, pid, *below, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_nothing_of_a_worker_outlives_a_judge_that_is_killed(mode, tmp_path):
    done = run_in(mode, "-c", KILLED, str(tmp_path / "k.py"))
    pids = done.stdout.split()
    assert len(pids) == 4, done.stderr
    limit = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < limit:
        time.sleep(0.01)
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", [AS_IT_IS, CONTAINER])
def test_daemon_that_a_file_leaves_is_found(mode):
    path = candidates_root() / "leaves_a_daemon.py"
    losscli = ("-m", "losscli", "judge", str(path), "--loss", "smooth_l1", "--device", "cpu")
    options = ("--quick", "--no-time", "--no-cache", "--format", "jsonl")
    verdict = json.loads(run_in(mode, *losscli, *options).stdout)
    assert "left_process" in [reason["code"] for reason in verdict["reasons"]]


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_attacks_succeed_where_there_are_no_walls(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    many = limits.OPEN_FILES * 2
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] not in range(many):
        resource.setrlimit(resource.RLIMIT_NOFILE, (many, many))
    tried = [each for each in ATTACKS if not each.alone]
    with set_up() as scene, open(os.devnull) as file:
        source = f"{inspect.getsource(attacks)}\nrun({[a.tries for a in tried]}, {scene.facts})"
        done = subprocess.run(
            [sys.executable, "-c", source],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            pass_fds=[*(os.dup(file.fileno()) for _ in range(4))],
        )
        told = {line["attack"]: line for line in map(json.loads, done.stdout.splitlines())}
        failed = {
            attack.tries: told[attack.tries]
            for attack in tried
            if not told[attack.tries]["got"] and not scene.outcome(attack)
        }
    if os.getuid():
        for name in OF_ROOT:
            failed.pop(name, None)
    assert failed == {}


def test_every_part_that_is_not_a_matter_of_course_is_attacked():
    assert {attack.part for attack in ATTACKS} == {*NAMES} - {"session"}


def siege(*states: isolation.State) -> Siege:
    tried = [
        Tried("files", f"attack {n}", state, "how it is" * 9) for n, state in enumerate(states)
    ]
    return Siege(
        command=("losscli",),
        created="2025-01-01",
        device="cpu",
        user="root",
        reached=NAMES[:3],
        results=tried,
    )


def test_doctor_fails_where_a_wall_that_is_there_does_not_hold(monkeypatch, capsys):
    for states, code in (((HELD,), 0), ((HELD, NOT_THERE), 0), ((NOT_HELD, NOT_THERE), 4)):
        monkeypatch.setattr(isolation, "besiege", Mock(return_value=siege(*states)))
        assert command_line(["doctor", "--isolation", "--device", "cpu", "--json"]) == code
        record = json.loads(capsys.readouterr().out)
        assert [each["state"] for each in record["results"]] == list(states)
        assert record["kind"] == "isolation"


def test_report_counts_states_and_says_what_is_missing():
    lines = text(doctor.of_isolation(siege(HELD, HELD, NOT_THERE))).splitlines()
    assert lines[0] == "isolation on cpu as root: 3 attacks, 2 held, 1 not there"
    assert any("missing: signals, network" in line for line in lines)
    assert max(map(len, lines)) <= 100


def test_table_of_the_documents_has_each_part_and_each_attack():
    text = program.walls()
    assert all(f"| {name} |" in text for name in NAMES)
    assert all(attack.tries in text for attack in ATTACKS)
