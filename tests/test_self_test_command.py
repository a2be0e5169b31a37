import re

import pytest

from losscli.cli import running
from losscli.cli.main import run
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from tests import judging

ON_CPU = ("self-test", "--device", "cpu")


@pytest.fixture
def tests(monkeypatch):
    """Replace what runs both self-tests; return a list of calls and a dict of the exit codes."""
    names = {"timer-test": "timer", "self-test": "checks"}
    calls, codes = [], dict.fromkeys(names.values(), EXIT_OK)

    def run_jobs(begun, jobs, results_of, *, format, output, keep_going):
        name, device = begun
        calls.append((name, device, format, output and output.name, keep_going))
        assert len(jobs) > 1
        return codes[name]

    monkeypatch.setattr(running, "begin", lambda kind, device: (names[kind], device))
    monkeypatch.setattr(running, "run_jobs", run_jobs)
    return calls, codes


def test_without_an_argument_both_self_tests_run(tests):
    calls, _ = tests
    assert run(ON_CPU) == EXIT_OK
    assert calls == [(name, "cpu", "table", None, True) for name in ("timer", "checks")]


@pytest.mark.parametrize("name", ["timer", "checks"])
def test_named_self_test_runs_alone(tests, name, tmp_path):
    calls, codes = tests
    codes[name] = EXIT_FAILED
    options = ["--format", "json", "-o", str(tmp_path / "report"), "--fail-fast"]
    assert run([*ON_CPU, name, *options]) == EXIT_FAILED
    assert calls == [(name, "cpu", "json", "report", False)]


@pytest.mark.parametrize("failed", ["timer", "checks"])
def test_one_failed_self_test_exits_1_after_both(tests, failed):
    calls, codes = tests
    codes[failed] = EXIT_FAILED
    assert run(ON_CPU) == EXIT_FAILED
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("code", "options"),
    [(EXIT_INTERRUPTED, ()), (EXIT_FAILED, ("--fail-fast",))],
    ids=["interrupted", "fail-fast"],
)
def test_second_self_test_is_not_begun(tests, code, options):
    calls, codes = tests
    codes["timer"] = code
    assert run([*ON_CPU, *options]) == code
    assert [name for name, *_ in calls] == ["timer"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "report"), "-o takes one report, but two self-tests write two"),
        (("--format", "json"), "--format json takes one report"),
        (("tiemr",), "unknown self-test 'tiemr'. Did you mean 'timer'?"),
        (("--device", "gpu"), "unknown device 'gpu'"),
    ],
)
def test_wrong_usage_runs_nothing(tests, options, message, capsys):
    assert run([*ON_CPU, *options]) == EXIT_USAGE
    assert message in capsys.readouterr().err
    assert tests[0] == []


def test_self_test_of_a_missing_gpu_cannot_run(tests, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert run(["self-test", "--device", "cuda"]) == EXIT_UNFIT
    assert tests[0] == []


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_option_that_was_a_self_test_names_the_command(command, capsys):
    assert run([command, "--self-test"]) == EXIT_USAGE
    told = f"losscli {command} has no option --self-test. Run `losscli self-test`, a command of"
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
