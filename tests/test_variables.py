import json

import click
import pytest

from losscli.cli import main
from losscli.cli.main import COMMANDS
from losscli.cli.variables import long_name, variables_of
from losscli.errors import EXIT_OK, EXIT_USAGE
from tests.without_torch import run_without_torch


def command_named(name):
    return main.group.get_command(click.Context(main.group), name)


def options():
    for name in COMMANDS:
        for option in command_named(name).params:
            if isinstance(option, click.Option):
                yield name, option


def test_every_option_has_a_variable():
    for name, option in options():
        flag = long_name(option).removeprefix("--").upper().replace("-", "_")
        assert option.envvar == variables_of(name, option), f"{name} {flag}"
        assert option.envvar[0] == f"LOSSCLI_{name.upper().replace('-', '_')}_{flag}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_a_variable(capsys, name):
    assert main.run([name, "--help"]) == EXIT_OK
    out = " ".join(capsys.readouterr().out.split())
    prefix = f"LOSSCLI_{name.upper().replace('-', '_')}_"
    assert f"Environment variables set options not given, e.g. {prefix}" in out
    assert "LOSSCLI_QUIET" in out


def listed(capsys, *arguments):
    assert main.run(["bench", "--device", "cpu", "--list", *arguments]) == EXIT_OK
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("loss", "size", "given", "names"),
    [
        ("mse", "16,8x8", (), ["mse 16 float32 mean", "mse 8x8 float32 mean"]),
        ("mse", "16", ("--loss", "hinge", "--size", "8"), ["hinge 8 float32 mean"]),
        ("", "8", ("--loss", "mse"), ["mse 8 float32 mean"]),
    ],
    ids=["with commas", "after the command line", "empty"],
)
def test_variable_sets_an_axis_unless_it_is_given(capsys, monkeypatch, loss, size, given, names):
    monkeypatch.setenv("LOSSCLI_BENCH_LOSS", loss)
    monkeypatch.setenv("LOSSCLI_BENCH_SIZE", size)
    assert listed(capsys, *given) == names


def test_variable_switches_a_flag(capsys, monkeypatch):
    monkeypatch.setenv("LOSSCLI_BENCH_LIST", "1")
    assert main.run(["bench", "--device", "cpu", "--loss", "mse", "--size", "8"]) == EXIT_OK
    assert capsys.readouterr().out == "mse 8 float32 mean\n"


WRONG = {
    ("LOSSCLI_BENCH_SIZE", "8y"): "'8y' is not a size",
    ("LOSSCLI_BENCH_FORMAT", "jsn"): "unknown format 'jsn'. Did you mean 'json'?",
    ("LOSSCLI_BENCH_DEVICE", "gpu"): "unknown device 'gpu'.",
    ("LOSSCLI_DEVICE", "gpu"): "unknown device 'gpu'.",
    ("LOSSCLI_BENCH_DRY_RUN", "x"): "'x' is neither on nor off. Write 1 or 0.",
    ("LOSSCLI_BENCH_IMPL", "my kernel.py"): "there is no file 'my kernel.py'",
}


def test_wrong_value_is_one_message_that_names_the_variable(capsys, monkeypatch, refused):
    for (variable, value), message in WRONG.items():
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            refused("bench", f"losscli: error: {variable}: {message}")
    monkeypatch.setenv("LOSSCLI_BENCH_SIZE", "8y")
    assert main.run(["bench", "--size", "8z"]) == EXIT_USAGE
    assert "LOSSCLI_BENCH_SIZE" not in capsys.readouterr().err


def test_build_has_a_device_of_its_own(capsys, monkeypatch):
    """`losscli build --device` takes no number of a GPU."""
    monkeypatch.setenv("LOSSCLI_DEVICE", "cuda:1")
    assert main.run(["build", "--help"]) == EXIT_OK
    assert "LOSSCLI_DEVICE" not in capsys.readouterr().out


def test_record_has_the_variables_that_set_options(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_BENCH_LOSS", "mse")
    monkeypatch.setenv("LOSSCLI_QUIET", "1")
    output = tmp_path / "run.json"
    arguments = ["--size", "8", "--impl", "reference", "--pass", "forward", "--processes", "1"]
    arguments += ["--device", "cpu", "--max-time", "0.01s", "--format", "json", "-o", str(output)]
    monkeypatch.setattr("sys.argv", ["losscli", "bench", *arguments])
    assert main.run() == EXIT_OK
    command = json.loads(output.read_text())["command"]
    assert command[:3] == ["LOSSCLI_BENCH_LOSS=mse", "losscli", "bench"]


def test_variables_need_no_torch(monkeypatch):
    monkeypatch.setenv("LOSSCLI_LIST_FORMAT", "json")
    result = run_without_torch("list", "implementations")
    assert (result.returncode, result.stderr) == (EXIT_OK, "")
    assert "custom" in json.loads(result.stdout)["implementations"]
