import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import torch  # noqa: F401  its errors are told apart once it is imported

import losscli
from losscli import errors
from losscli.cli import interrupts, main
from losscli.cli.options import axis_options, resolve_config
from losscli.cli.running import run_jobs
from losscli.config.loader import load_config
from losscli.config.schema import LossChoice
from losscli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNFIT, EXIT_USAGE
from losscli.losses import LOSSES
from losscli.processes import Process
from tests.handmade import PAIR
from tests.handmade import run as made
from tests.parameters import SLOW
from tests.without_torch import run_without_torch


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs a command with a given action; it returns the exit code."""

    def run(action, *arguments):
        command = click.Command("bench", callback=action)
        monkeypatch.setattr(main._LazyGroup, "get_command", lambda *_: command)
        return main.run([*arguments, "bench"])

    return run


def fail(error):
    def action():
        raise error

    return action


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command(option):
    result = run_without_torch(option)
    assert (result.returncode, result.stderr) == (EXIT_OK, "")
    assert all(f"{name} " in result.stdout for name in main.COMMANDS)
    assert all(text in result.stdout for text in main.COMMANDS.values())


def test_help_of_each_command_fits_and_needs_no_torch():
    for name in main.COMMANDS:
        result = run_without_torch(name, "-h")
        assert (result.returncode, result.stderr) == (EXIT_OK, ""), name
        assert f"Usage: losscli {name}" in result.stdout
        assert result.stdout.count("--debug") == 1, name
        assert result.stdout.isascii(), name  # click writes it, and escapes nothing
        assert max(map(len, result.stdout.splitlines())) <= 100, name


def test_wrong_command_line_is_one_message_exits_2_and_needs_no_torch():
    """As does each of the transcripts of wrong usage."""
    for command in (
        "bnech",
        "list loses",
        "bench --szie 8",
        "bench --loss mes",
        "bench -c no.yaml",
    ):
        result = run_without_torch(*command.split())
        assert (result.returncode, result.stdout) == (EXIT_USAGE, ""), command
        assert re.fullmatch("losscli: error: .*\n", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-o", "{}/x"], EXIT_UNFIT, "-o '{}/x': Permission denied. Name another file."),
        (["-o", "{}/x/y"], EXIT_UNFIT, "-o '{}/x/y': Permission denied. Name another file."),
        (["-c", "{}/x.yaml"], EXIT_USAGE, "config '{}/x.yaml' cannot be read: Permission denied."),
        (
            ["-c", "{}.yaml"],
            EXIT_USAGE,
            "{}.yaml:1:10: config 'closed/x.yaml' cannot be read: Permission denied.",
        ),
    ],
)
def test_unreadable_path_is_one_message(capsys, monkeypatch, tmp_path, arguments, code, message):
    stat, closed = Path.stat, tmp_path / "closed"

    def refuse(path, **options):  # which permissions do not, to root
        if closed in path.parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    (tmp_path / "closed.yaml").write_text("extends: closed/x.yaml\n")
    arguments = [argument.format(closed) for argument in arguments]
    assert main.run(["bench", "--device", "cpu", "--list", *arguments]) == code
    assert capsys.readouterr().err == f"losscli: error: {message.format(closed)}\n"


@pytest.fixture
def resolved(monkeypatch):
    """Return a function that resolves a command line to a config."""

    def resolve(*arguments):
        configs = []

        @click.command("bench")
        @axis_options
        def command(dry_run, list_cases, keep_going, **axes):
            configs.append(resolve_config(**axes))

        monkeypatch.setattr(main._LazyGroup, "get_command", lambda *_: command)
        assert main.run(["bench", *arguments]) == EXIT_OK
        return configs[0]

    return resolve


def test_option_replaces_its_axis_and_no_other(resolved):
    default = load_config(None, {})
    assert resolved() == default
    config = resolved("--size", "8x8,2K", "--size", "8x8", "--dtype", "float64", "--seed", "3")
    assert config.sizes == ((8, 8), (2048,))
    assert config.dtypes == ("float64",)
    assert config.inputs == replace(default.inputs, seed=3)
    kept = {"sizes": default.sizes, "dtypes": default.dtypes, "inputs": default.inputs}
    assert replace(config, **kept) == default


def test_axes_of_names_repeat_and_take_commas(resolved):
    config = resolved(
        *("-c", "smoke", "--loss", "hinge", "--reduction", "sum,none", "--pass", "forward"),
        *("--impl", "compile", "--impl", "custom", "--device", "cuda:1"),
    )
    assert config.losses == (LossChoice("hinge", {"margin": (0.1,)}),)
    assert (config.reductions, config.passes) == (("sum", "none"), ("forward",))
    assert (config.implementations, config.device) == (("compile", "custom"), "cuda:1")
    assert [choice.name for choice in resolved("--loss", "all").losses] == list(LOSSES)


def test_config_error_needs_no_torch(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("sizes: 8x8\ndtypes: [float31]\n")
    result = run_without_torch("bench", "-c", str(path))
    assert result.returncode == EXIT_USAGE
    assert result.stderr.startswith(f"losscli: error: {path}:2:10: unknown dtype 'float31'.")
    result = run_without_torch("list")
    assert (result.returncode, result.stderr) == (EXIT_OK, "")


def test_without_arguments_help_is_printed_and_exits_2(capsys):
    assert main.run([]) == EXIT_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: losscli" in captured.err


def test_module_runs_and_prints_its_version():
    command = [sys.executable, "-m", "losscli", "--version"]
    assert subprocess.check_output(command, text=True).startswith(f"losscli {losscli.__version__}")


ERRORS = [
    (errors.LosscliError("no."), "no.", EXIT_FAILED),
    (errors.ConfigError("no.", file="f", line=1, column=2), "f:1:2: no.", EXIT_USAGE),
    (errors.BuildError("no."), "no.", errors.EXIT_BUILD),
    (errors.UnfitError("no."), "no.", EXIT_UNFIT),
    (MemoryError(), "out of memory. Choose smaller sizes", EXIT_UNFIT),
    (RuntimeError("DefaultCPUAllocator: can't allocate"), "out of memory.", EXIT_UNFIT),
    (OSError(errno.ENOSPC, "full", "/f"), "no space left on the device of /f.", EXIT_UNFIT),
    (ValueError("odd\nmore"), "unexpected ValueError: odd (run again", errors.EXIT_UNEXPECTED),
    (ValueError(), "unexpected ValueError", errors.EXIT_UNEXPECTED),
]


def test_error_becomes_one_line_and_an_exit_code(capsys, run):
    for error, message, code in ERRORS:
        assert run(fail(error)) == code
        captured = capsys.readouterr()
        assert captured.err.startswith(f"losscli: error: {message}")
        assert (captured.err.count("\n"), captured.out) == (1, "")
    assert run(fail(errors.BuildError("no.")), "--debug") == errors.EXIT_BUILD
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith("losscli: error: no.\n")


def test_output_that_cannot_be_written_is_refused_at_once(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert main.run(["bench", "-o", str(tmp_path / "out.json")]) == EXIT_UNFIT
    assert "out.json' cannot be written." in capsys.readouterr().err


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_exits_130_with_one_line(capsys, run, error):
    assert run(fail(error)) == EXIT_INTERRUPTED
    assert capsys.readouterr().err.strip() == "losscli: interrupted"


def end_by_error():
    raise ImportError("cannot load module more than once per process")


@pytest.mark.parametrize("number", SIGNALS)
def test_interrupt_exits_130_even_if_it_is_swallowed(capsys, run, number):
    before = signal.getsignal(number)
    assert run(lambda: os.kill(os.getpid(), number)) == EXIT_INTERRUPTED
    assert signal.getsignal(number) == before
    capsys.readouterr()
    for end in (lambda: EXIT_OK, lambda: EXIT_FAILED, end_by_error):

        def action(end=end):
            with contextlib.suppress(KeyboardInterrupt):
                os.kill(os.getpid(), number)
            return end()

        assert run(action) == EXIT_INTERRUPTED
        assert capsys.readouterr().err == "losscli: interrupted\n"


def test_interrupt_that_the_command_reported_is_not_reported_again(capsys, run):
    def action():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return EXIT_INTERRUPTED

    assert run(action) == EXIT_INTERRUPTED
    assert capsys.readouterr().err == ""


SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize("seconds", [0.02, 5.0], ids=["together", "later"])
@pytest.mark.parametrize("number", SIGNALS)
def test_second_signal_kills_what_the_first_would_wait_for(monkeypatch, run, number, seconds):
    """Only a later one ends what is still being written for the first."""
    clock = iter((0.0, seconds))
    monkeypatch.setattr(interrupts, "monotonic", lambda: next(clock, seconds))
    ended, written = [], []

    def action():
        with Process(SLEEP) as process:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                try:
                    os.kill(os.getpid(), number)
                    written.append("the report")
                finally:
                    ended.append(process.wait(20))

    assert run(action) == EXIT_INTERRUPTED
    assert ended == [-signal.SIGKILL]
    assert len(written) == (seconds < interrupts.TOGETHER_SECONDS)


def test_run_that_a_signal_may_have_killed_reports_no_result(run, tmp_path):
    def results_of(job):
        yield PAIR[0]
        interrupts.received.append(signal.SIGINT)  # swallowed by what is measured
        yield PAIR[1]

    output, jobs = tmp_path / "out.json", [SimpleNamespace(name="a case")]
    report = {"weights": [1.0], "format": "json", "output": output}
    assert run(lambda: run_jobs(made(), jobs, results_of, **report)) == EXIT_INTERRUPTED
    assert len(json.loads(output.read_text())["results"]) == 1


def test_end_during_an_import_kills_what_was_started(monkeypatch, capfd):
    monkeypatch.setattr(os, "_exit", lambda code: None)
    with Process(SLEEP) as process:
        interrupts.end_at_once()
        assert process.wait(20) == -signal.SIGKILL
    assert capfd.readouterr().err == "losscli: interrupted\n"


def test_ignored_signal_stays_ignored(run):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(lambda: os.kill(os.getpid(), signal.SIGHUP)) == EXIT_OK
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_command_chooses_its_exit_code(run):
    for code in (EXIT_OK, EXIT_FAILED):
        assert run(lambda code=code: code) == code
        assert run(fail(click.exceptions.Exit(code))) == code


def test_closed_output_pipe_exits_141_without_a_message():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "losscli", "list"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (result.returncode, result.stderr) == (errors.EXIT_BROKEN_PIPE, b"")


@pytest.mark.parametrize(
    "closed", [*(pytest.param(c, marks=SLOW) for c in (">&-", "2>&-")), ">&- 2>&-"]
)
def test_stream_that_is_closed_at_the_start_is_replaced(closed):
    command = f"{sys.executable} -m losscli list {closed}"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (EXIT_OK, "")


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KILL = """
import os, signal
try:
    os.kill(os.getpid(), signal.{})
except KeyboardInterrupt:
    pass  # as numpy's import within torch's does
__version__ = "2.13.0"
"""


@pytest.fixture
def interrupted(tmp_path):
    """Return a function that runs losscli with a module whose import sends it a signal."""

    def run(module, name, *arguments):
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").write_text(KILL.format(name))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), ROOT))}
        command = [sys.executable, "-m", "losscli", *arguments]
        return subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=60
        )

    return run


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("module", ["click", "torch"])
def test_a_signal_during_an_import_that_swallows_it_ends_the_program(interrupted, module, name):
    done = interrupted(module, name, "bench", "--device", "auto", "--loss", "mse", "--size", "8")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "losscli: interrupted\n"


def test_signal_after_the_imports_is_one_line(interrupted):
    done = interrupted("yaml", "SIGTERM", "bench", "--loss", "mse", "--size", "8", "--dry-run")
    assert (done.returncode, done.stderr) == (130, "losscli: interrupted\n")
