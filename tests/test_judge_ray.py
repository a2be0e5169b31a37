"""A farm on a real cluster of Ray, which each test starts and ends, with judges that are fast.

A node takes jobs only from a losscli with the same source files: do not edit losscli meanwhile.
"""

import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from losscli.errors import UnfitError
from losscli.judge.farm import Farm
from losscli.judge.job import Job
from losscli.judge.pool import LocalPool
from losscli.judge.ray_cluster import RayCluster, client_address
from tests.judging import COMMAND, ROOT, is_there, judge_here, wait_for, write
from tests.parameters import SLOW

pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Return the file in which the fake judges write what they judged."""
    monkeypatch.chdir(ROOT)
    path = tmp_path / "log"
    monkeypatch.setenv("FAKE_JUDGE_LOG", str(path))
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else Ray keeps a token in the home directory
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return path


def judged(log):
    """Return the ids that were judged, and by which process."""
    return [line.rsplit(" ", 1) for line in log.read_text().splitlines()]


def jobs_of(folder, says):
    return [
        Job(write(folder, f"k{number}.py", text), id=str(number), device="cpu")
        for number, text in enumerate(says)
    ]


@pytest.mark.parametrize("is_lost", [False, pytest.param(True, marks=SLOW)])
def test_candidates_and_a_killed_worker(tmp_path, log, capsys, monkeypatch, is_lost):
    says = ["RIGHT", "WRONG", "SLOWER", "CHEATS"]
    with monkeypatch.context() as here:
        judge_here(here)
        local = {verdict.id: verdict for verdict in LocalPool(2).run(jobs_of(tmp_path, says))}
    log.unlink()
    says[0] = "kills_worker_once"
    says += ["kills_worker"] * is_lost
    farm = Farm(RayCluster(workers=2), cached=False, command=COMMAND)
    found = {verdict.id: verdict for verdict in farm.run(jobs_of(tmp_path, says))}
    ids = [id for id, _ in judged(log)]
    assert ids.count("0") == 2
    if is_lost:
        lost = found.pop("4")
        assert ids.count("4") == 4
        assert (lost.word, lost.reasons[0].code) == ("NOT JUDGED", "error")
        text = "its worker was lost 4 times, the last time: The worker died"
        assert lost.reasons[0].text.startswith(text)
    assert found == local
    assert capsys.readouterr().out == ""
    wait_for(lambda: not any(is_there(int(pid)) for _, pid in judged(log)))


def driver(folder, *arguments):
    """Start losscli with a farm whose judges say what a file says."""
    command = [sys.executable, "-m", "tests.judging", "judge", "--on", "ray", "--workers", "2"]
    command += ["--no-cache", "--jobs", str(folder / "jobs.jsonl"), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow  # starts a cluster twice
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl_c", "killed"])
def test_driver_that_ends_loses_no_verdict_and_leaves_no_process(tmp_path, log, number):
    says = ["RIGHT", "WRONG", "slow", "slow", "RIGHT"]
    jobs = jobs_of(tmp_path, says)
    (tmp_path / "jobs.jsonl").write_text("".join(f"{json.dumps(j.to_json())}\n" for j in jobs))
    output = tmp_path / "out.jsonl"
    process = driver(tmp_path, "-o", str(output))
    wait_for(lambda: output.exists() and len(output.read_text().splitlines()) == 2)
    wait_for(lambda: len(judged(log)) == 4)
    process.send_signal(number)
    told = process.communicate(timeout=60)[1]  # which closes the pipe as well
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "losscli: interrupted; judge the rest with --resume" in told
    wait_for(lambda: not any(is_there(int(pid)) for _, pid in judged(log)))
    log.unlink()
    for name in ("k2.py", "k3.py"):
        write(tmp_path, name, "RIGHT")
    process = driver(tmp_path, "--resume", str(output))
    process.communicate(timeout=60)
    assert process.returncode == 1  # one is WRONG
    assert sorted(id for id, _ in judged(log)) == ["2", "3", "4"]
    verdicts = [json.loads(line) for line in output.read_text().splitlines()]
    assert sorted(verdict["id"] for verdict in verdicts) == ["0", "1", "2", "3", "4"]


@pytest.fixture
def cluster(log, monkeypatch):
    """Return a cluster that the command joins, whose head takes no jobs."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 2**27}
    found = Cluster(initialize_head=True, head_node_args=head)
    monkeypatch.setenv("RAY_ADDRESS", found.address)
    yield found
    found.shutdown()


def add_node(cluster, **environ):
    return cluster.add_node(num_cpus=1, object_store_memory=2**27, env_vars=environ)


@pytest.mark.slow  # starts four nodes
def test_node_without_a_compiler_gets_no_jobs_and_that_of_a_lost_node_is_judged(
    tmp_path, log, cluster
):
    add_node(cluster, CXX="/no/compiler")
    good = add_node(cluster)
    notes = []
    farm = Farm(RayCluster(), cached=False, command=COMMAND, notify=notes.append)
    verdicts = farm.run(jobs_of(tmp_path, [*["RIGHT"] * 6, "slow_once"]))
    found = [next(verdicts) for _ in range(6)]
    assert [note.partition("judges no more: ")[2] for note in notes] == ["it has no C++ compiler"]
    wait_for(lambda: "6" in [id for id, _ in judged(log)])
    add_node(cluster)
    cluster.remove_node(good, allow_graceful=False)
    found += verdicts
    assert {verdict.id: verdict.word for verdict in found} == {str(n): "RIGHT" for n in range(7)}
    assert len(found) == 7
    assert [id for id, _ in judged(log)].count("6") == 2


def test_standard_output_is_rays_again_after_a_failure(free_address):
    from ray._private import worker

    before = worker.print_to_stdstream
    cluster = RayCluster(client_address(free_address))
    with pytest.raises(UnfitError):
        cluster.open()
    assert worker.print_to_stdstream is not before
    cluster.close([])
    assert worker.print_to_stdstream is before


@pytest.mark.slow  # for Ray waits
def test_address_of_something_else_is_told_within_seconds():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(UnfitError, match=r"did not respond within 10 s\. Is it a Ray cluster"):
            next(Farm(RayCluster(client_address(address))).run([]))
        assert time.monotonic() - started < 15


REAL = """import torch


def mse_loss(input, target):
    difference = input - target + {wrong}
    return (difference * difference).mean()
"""


@pytest.mark.slow  # judges eight candidates twice
def test_real_candidates_get_the_verdicts_of_this_machine(tmp_path, log):
    jobs = []
    for number in range(8):
        path = tmp_path / f"k{number}.py"
        path.write_text(REAL.format(wrong=1 if number % 4 == 3 else 0))
        job = Job(str(path), id=str(number), loss="mse", device="cpu", quick=True, timed=False)
        jobs.append(job)
    local = {verdict.id: what(verdict) for verdict in LocalPool(2).run(jobs)}
    found = list(Farm(RayCluster(workers=2), cached=False).run(jobs))
    assert len(found) == len(jobs)
    assert {verdict.id: what(verdict) for verdict in found} == local


def what(verdict):
    """Return what two judgements of a file have in common, whatever their seeds."""
    codes = [(reason.code, reason.stage, reason.check) for reason in verdict.reasons]
    about = (verdict.word, verdict.file, verdict.against, verdict.device, verdict.trains)
    checks = sum(verdict.checks.values())  # by its seed one may warn or pass
    return (*about, codes, checks, verdict.isolation, verdict.sha256, verdict.host)
