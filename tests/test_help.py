"""The help of each command has examples that the command accepts; --version; -q; colour."""

import io
import re
import shlex

import click
import pytest

import losscli
from losscli.cli import main, version
from losscli.cli.main import COMMANDS
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.notes import is_quiet, note
from losscli.report.output import with_verdicts_in_colour
from losscli.streams import in_colour
from tests.without_torch import run_without_torch


def examples(name):
    """Return the command lines in the help of a command, each as words."""
    command = main.group.get_command(click.Context(main.group), name)
    block = re.search(r"Examples:\n((?:  .*\n?)+)", command.help or "")
    assert block, f"the help of {name} has no example"
    lines = re.findall(r"losscli [^|>)\n]*", block[1])
    return [shlex.split(line.partition("   ")[0]) for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_that_the_command_accepts(capsys, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_kernel.py").write_text("def mse_loss(input, target): ...\n")
    found = examples(name)
    assert found
    for _, command, *arguments in found:
        assert command == name
        context = click.Context(main.group, info_name="losscli")
        main.group.get_command(context, name).make_context(name, arguments, context)

    assert main.run([name, "--help"]) == EXIT_OK
    in_a_line_of_its_own = r"^ {4}(?:\w+ \S*)?losscli "
    assert re.findall(in_a_line_of_its_own, capsys.readouterr().out, re.MULTILINE)


def test_version_names_torch_compiler_and_cache_without_importing_torch(monkeypatch, tmp_path):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path))
    result = run_without_torch("--version")
    assert (result.returncode, result.stderr) == (EXIT_OK, "")
    first, torch, compiler, cache = result.stdout.splitlines()
    assert first.startswith(f"losscli {losscli.__version__}")
    assert torch.startswith("torch ")
    assert compiler.startswith("compiler ")
    assert cache == f"cache {tmp_path}"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({}, "not installed"),
        ({"version.py": ""}, "of unknown version"),
        ({"version.py": "__version__ = '2.13.0'\ncuda: str | None = None"}, "2.13.0"),
        ({"version.py": "__version__ = '2.13.0'\ncuda = '13.0'"}, "2.13.0, CUDA 13.0"),
        ({"other.py": ""}, "not readable (FileNotFoundError); `losscli doctor` says more"),
    ],
)
def test_version_of_a_missing_or_broken_torch(monkeypatch, tmp_path, files, told):
    spec = None
    if files:
        spec = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("losscli.cli.version.PathFinder.find_spec", lambda name: spec)
    assert f"\ntorch {told}\n" in version.describe()


@pytest.mark.parametrize("flag", ["-q", "--quiet"])
def test_quiet_writes_no_notes(capsys, monkeypatch, flag):
    monkeypatch.delenv("LOSSCLI_QUIET", raising=False)
    monkeypatch.setattr("losscli.cli.list.command.callback", lambda **given: note("unheard"))
    assert main.run(["list", flag]) == EXIT_OK
    assert capsys.readouterr().err == ""
    assert not is_quiet()
    assert main.run(["list"]) == EXIT_OK
    assert capsys.readouterr().err == "losscli: unheard\n"


def test_quiet_still_shows_errors(capsys):
    assert main.run(["list", "-q", "loses"]) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("losscli: error: unknown kind 'loses'")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "expected"),
    [
        (_Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (_Terminal(), {"TERM": "dumb"}, False),
        (_Terminal(), {"NO_COLOR": "1"}, False),
        (_Terminal(), {"NO_COLOR": ""}, True),
        (io.StringIO(), {"FORCE_COLOR": "1"}, True),
        (_Terminal(), {"FORCE_COLOR": "0"}, False),
        (io.StringIO(), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_terminals_and_variables_decide(stream, environ, expected):
    assert in_colour(stream, environ) is expected


def test_verdicts_are_coloured_and_nothing_else():
    assert with_verdicts_in_colour("FAIL 2/54") == "\033[31mFAIL\033[0m 2/54"
    assert with_verdicts_in_colour("RIGHT BUT NO GRADIENT x.py") == (
        "\033[33mRIGHT BUT NO GRADIENT\033[0m x.py"
    )
    for text in ("pass 54", "FAILURE", "--fail-on", "my-FAIL.py"):
        assert with_verdicts_in_colour(text) == text
