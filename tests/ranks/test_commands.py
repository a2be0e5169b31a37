"""The commands over two real ranks of Gloo, started as users start them.

What verify finds over ranks is tested in tests/sharded, whose ranks are started once.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from losscli.machine import devices
from losscli.runs.journal import journal_path

LOSSCLI = (sys.executable, "-m", "losscli")
SMALL = """
device: cpu
placement: vocabulary
losses: cross_entropy
inputs: {distribution: normal, scale: 2}
passes: [forward_backward]
implementations: [custom, reference]
timing: {min_time: 1ms, max_time: 20ms, confidence: 50%}
"""
ENDLESS = """
tables:
  - {title: short, sizes: [8x64]}
  - {title: endless, sizes: [8x66], timing: {min_time: 100s, max_time: 100s}}
"""


@pytest.fixture
def start(tmp_path):
    """Start a command over two ranks, with a config; all of it is ended with the test."""
    started = []

    def begin(config, *arguments):
        file = tmp_path / "split.yaml"
        file.write_text(config)
        environ = {**os.environ, "LOSSCLI_RANKS_TIMEOUT": "30"}
        process = subprocess.Popen(
            [*LOSSCLI, *arguments, "-c", str(file), "--ranks", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def rank_process(command: int, rank: int) -> int | None:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            environ = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == command and f"RANK={rank}".encode() in environ:
            return int(path.name)
    return None


def until(holds, seconds=60.0):
    """Wait until a condition holds, and return what it found."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)
    return found


def test_bench_has_one_report_with_what_each_rank_measured(start):
    output, errors = start(
        f"{SMALL}sizes: [64x1001]", "bench", "--format", "json", "-q"
    ).communicate(timeout=120)
    run = json.loads(output)  # of one rank alone
    assert errors == ""
    assert [each["rank"] for each in run["environment"]["ranks"]] == [0, 1]
    assert {result["status"] for result in run["results"]} == {"ok"}
    for result in run["results"]:
        assert (result["case"]["ranks"], result["case"]["placement"]) == (2, "vocabulary")
        medians = [each["median"] for each in result["ranks"]]
        assert len(medians) == 2
        assert max(medians) <= result["seconds"]["max"]
        assert result["collective"]["bytes"] == 64 * 3 * 4  # three numbers of each row
        assert result["collective"]["seconds"] > 0
        peaks = [each["peak_extra_bytes"] for each in result["ranks"]]
        assert result["peak_extra_bytes"] == max(peaks)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_rank_that_is_killed_or_ctrl_c_ends_the_run_and_all_ranks(start, tmp_path, end):
    report = tmp_path / "run.json"
    journal = journal_path(report)
    process = start(SMALL + ENDLESS, "bench", "--format", "json", "-o", str(report))
    until(lambda: journal.exists() and '"reference"' in journal.read_text().partition("custom")[2])
    ranks = [rank_process(process.pid, rank) for rank in (0, 1)]
    killed = ranks[1] if end == signal.SIGKILL else process.pid
    assert killed
    began = time.monotonic()
    os.kill(killed, end)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert "the report has the finished results" in errors
    assert len(json.loads(report.read_text())["results"]) == 2
    if end == signal.SIGKILL:
        assert process.returncode == 1
        assert f"error: rank 1 (process {ranks[1]}) ended by SIGKILL" in errors
    else:
        assert process.returncode == 130
        assert errors.count("interrupted") == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


@pytest.mark.slow
def test_verify_runs_the_checks_of_whole_operands_and_says_which_it_skips(start):
    config = SMALL.replace("passes: [forward_backward]", "sizes: [37x101]")
    config = config.replace("cross_entropy", "[cross_entropy: {label_smoothing: 0.1}]")
    config += "checks: [value, gradients, retain_graph, out_of_range_classes, memory]\n"
    process = start(config, "verify", "--format", "json", "--impl", "custom")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    found = {each["check"]: each for each in json.loads(output)["results"]}
    statuses = {name: each["status"] for name, each in found.items()}
    assert statuses == {
        "value": "pass",
        "input_gradient": "pass",
        "retain_graph": "pass",
        "out_of_range_classes": "pass",
        "memory": "skipped",
    }
    assert "does not run over ranks" in found["memory"]["reason"]


@pytest.mark.slow
def test_self_test_over_ranks_has_no_surprise():
    command = [*LOSSCLI, "self-test", "checks", "--ranks", "2", "--device", "cpu"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "7 of 7 wrong implementations caught, 3 of 3 legitimate ones passed" in found.stdout
    assert found.returncode == 0


def test_more_ranks_than_gpus_are_refused(refused, monkeypatch):
    """data/golden/wrong_ranks.txt has what else is refused before a rank is started."""
    monkeypatch.setattr(devices, "torch_without_cuda", lambda: None)
    monkeypatch.setattr(devices, "find_gpus", lambda: ["one", "another"])
    too_few = "4 ranks need 4 GPUs, but this machine has 2"
    refused("bench -c sharded --ranks 4", too_few, code=4)
