import re

import pytest

from losscli.cli import running
from losscli.cli.main import run
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from tests import judging
from tests.parameters import naming

ON_CPU = ("self-test", "--device", "cpu")


@pytest.fixture
def tests(monkeypatch):
    """Replace what runs both self-tests; return a list of calls and a dict of the exit codes."""
    names = {"timer-test": "timer", "self-test": "checks"}
    calls, codes = [], dict.fromkeys(names.values(), EXIT_OK)

    def run_jobs(begun, jobs, results_of, *, weights, format, output, keep_going):
        name, device = begun
        calls.append((name, device, format, output and output.name, keep_going))
        assert len(weights) == len(jobs) > 1
        return codes[name]

    monkeypatch.setattr(running, "begin", lambda kind, device: (names[kind], device))
    monkeypatch.setattr(running, "run_jobs", run_jobs)
    return calls, codes


BOTH = ["timer", "checks"]
RUNS: list[tuple[str, dict[str, int], int, list[str]]] = [
    ("", {}, EXIT_OK, BOTH),
    ("", {"timer": EXIT_FAILED}, EXIT_FAILED, BOTH),
    ("", {"checks": EXIT_FAILED}, EXIT_FAILED, BOTH),
    ("", {"timer": EXIT_INTERRUPTED}, EXIT_INTERRUPTED, ["timer"]),
    ("--fail-fast", {"timer": EXIT_FAILED}, EXIT_FAILED, ["timer"]),
    ("timer --format json -o FILE", {"timer": EXIT_FAILED}, EXIT_FAILED, ["timer"]),
    ("checks --format json -o FILE", {"checks": EXIT_FAILED}, EXIT_FAILED, ["checks"]),
]
"""Options, what the self-tests exit with, what the command exits with, and what has run."""


def test_both_self_tests_run_or_the_one_that_is_named(tests, tmp_path):
    calls, codes = tests
    for options, failing, code, names in RUNS:
        calls.clear()
        codes.update({"timer": EXIT_OK, "checks": EXIT_OK} | failing)
        with naming(options, failing):
            assert run([*ON_CPU, *options.replace("FILE", f"{tmp_path}/report").split()]) == code
            written = ("json", "report") if "json" in options else ("table", None)
            keeps_on = "--fail-fast" not in options
            assert calls == [(name, "cpu", *written, keeps_on) for name in names]


def test_self_tests_of_a_missing_gpu_do_not_run(tests, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert run(["self-test", "--device", "cuda"]) == EXIT_UNFIT
    assert tests[0] == []


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_option_that_was_a_self_test_names_the_command(command, capsys):
    assert run([command, "--self-test"]) == EXIT_USAGE
    told = f"losscli {command} has no option --self-test. Run `losscli self-test`, a separate"
    assert told in capsys.readouterr().err


def test_self_test_of_the_judge_stops_at_the_first_failure_and_says_what_is_left():
    found = judging.run("self-test", "judge", "--device", "cpu", "--fail-fast")
    assert found.returncode == EXIT_FAILED
    assert "stopped at the first failure (--fail-fast)" in found.stderr
    assert re.search(r"losscli: [1-9][0-9]* of [1-9][0-9]* files are not judged", found.stderr)
    assert "as expected" in found.stdout


def test_self_test_of_the_judge_that_is_interrupted_at_once_writes_no_report(
    monkeypatch, capsys, tmp_path
):
    def interrupted(*_, **__):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("losscli.judge.batch.judge_batch", interrupted)
    output = tmp_path / "report.json"
    assert run([*ON_CPU, "judge", "--format", "json", "-o", str(output)]) == EXIT_INTERRUPTED
    assert not output.exists()
    err = capsys.readouterr().err
    assert re.search(r"interrupted; ([0-9]+) of \1 files are not judged", err)
