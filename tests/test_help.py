import io
import re
import shlex
from types import SimpleNamespace
from unittest.mock import Mock

import click
import pytest

import losscli
from losscli import errors
from losscli.cli import main, version
from losscli.cli.completion import SHELLS
from losscli.cli.main import COMMANDS
from losscli.cli.options import FORMATS
from losscli.cli.variables import EXCEPT, FOR_ALL
from losscli.console.notes import is_quiet, note
from losscli.console.streams import in_colour
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.render.output import with_verdicts_in_colour
from tests.conftest import GOLDEN
from tests.documents import ROOT
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


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_of_a_command_has_more_than_60_lines_of_80_columns(name):
    command = main.group.get_command(click.Context(main.group), name)
    assert command
    context = click.Context(command, info_name=f"losscli {name}", terminal_width=80)
    assert len(command.get_help(context).splitlines()) <= 60


def test_version_names_torch_compiler_and_cache_without_importing_torch(monkeypatch, tmp_path):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path))
    result = run_without_torch("--version")
    assert (result.returncode, result.stderr) == (EXIT_OK, "")
    first, torch, compiler, cache = result.stdout.splitlines()
    assert first.startswith(f"losscli {losscli.__version__}")
    assert torch.startswith("torch ")
    assert compiler.startswith("compiler ")
    assert cache == f"cache {tmp_path}"


def test_version_of_a_missing_or_broken_torch(monkeypatch, tmp_path):
    text = "__version__ = '2.13.0'\ncuda: str | None = "
    for number, (files, told) in enumerate(
        (
            ({}, "not installed"),
            ({"version.py": ""}, "of unknown version"),
            ({"version.py": f"{text}None"}, "2.13.0"),
            ({"version.py": f"{text}'13.0'"}, "2.13.0, CUDA 13.0"),
            ({"other.py": ""}, "not readable (FileNotFoundError); `losscli doctor` says more"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        spec = SimpleNamespace(origin=str(folder / "__init__.py")) if files else None
        for name, content in files.items():
            (folder / name).write_text(content)
        find = Mock(return_value=spec)
        monkeypatch.setattr("losscli.cli.version.PathFinder.find_spec", find)
        assert f"\ntorch {told}\n" in version.describe()


def test_quiet_writes_no_notes_but_errors(capsys, monkeypatch):
    monkeypatch.delenv("LOSSCLI_QUIET", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr("losscli.cli.list.command.callback", lambda **given: note("unheard"))
        for flag in ("-q", "--quiet"):
            assert main.run(["list", flag]) == EXIT_OK
            assert capsys.readouterr().err == ""
            assert not is_quiet()
        assert main.run(["list"]) == EXIT_OK
        assert capsys.readouterr().err == "losscli: unheard\n"
    assert main.run(["list", "-q", "loses"]) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("losscli: error: unknown kind 'loses'")


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colour_is_for_terminals_and_variables_decide():
    terminal, file = _Terminal(), io.StringIO()
    for stream, environ, expected in (
        (terminal, {}, True),
        (file, {}, False),
        (terminal, {"TERM": "dumb"}, False),
        (terminal, {"NO_COLOR": "1"}, False),
        (terminal, {"NO_COLOR": ""}, True),
        (file, {"FORCE_COLOR": "1"}, True),
        (terminal, {"FORCE_COLOR": "0"}, False),
        (file, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ):
        assert in_colour(stream, environ) is expected, environ


def test_verdicts_are_coloured_and_nothing_else():
    assert with_verdicts_in_colour("FAIL 2/54") == "\033[31mFAIL\033[0m 2/54"
    assert with_verdicts_in_colour("RIGHT BUT NO GRADIENT x.py") == (
        "\033[33mRIGHT BUT NO GRADIENT\033[0m x.py"
    )
    for text in ("pass 54", "FAILURE", "--fail-on", "my-FAIL.py"):
        assert with_verdicts_in_colour(text) == text


TEXT = (ROOT / "docs" / "reference.md").read_text()


def test_every_exit_code_shell_format_and_variable_is_described():
    codes = {code for name, code in vars(errors).items() if name.startswith("EXIT_")}
    assert codes == set(map(int, re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)))
    assert all(f"losscli completion {shell}" in TEXT for shell in SHELLS)
    assert all(f"| `{format}` |" in TEXT for format in FORMATS)
    assert all(f"| `LOSSCLI_{name.upper()}` |" in TEXT for name in FOR_ALL)
    assert all(f"not of `{command}`" in TEXT for command, _ in EXCEPT)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("wrong_*.txt")))
def test_commands_print_what_a_transcript_says(name, golden, capsys):
    text = ""
    for line in (GOLDEN / name).read_text().splitlines():
        if line.startswith("$ losscli "):
            code = main.run(shlex.split(line)[2:])
            told = "".join(capsys.readouterr())
            told = re.sub("(Choose from: ).*", r"\1...", told)  # whatever losses there are
            text += f"{line}\n{told}exit code {code}\n\n"
    golden(name, text)
