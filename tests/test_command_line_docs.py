"""docs/command-line.md tells of every exit code, shell and variable."""

import re

import pytest

from losscli import errors
from losscli.cli.completion import SHELLS
from losscli.cli.options import FORMATS
from losscli.cli.variables import EXCEPT, FOR_ALL
from tests.documents import ROOT

TEXT = (ROOT / "docs" / "command-line.md").read_text()


def test_every_exit_code_is_described():
    codes = {code for name, code in vars(errors).items() if name.startswith("EXIT_")}
    assert codes == set(map(int, re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)))


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_described(shell):
    assert f"losscli completion {shell}" in TEXT


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_described(format):
    assert f"| `{format}` |" in TEXT


def test_variables_for_all_commands_are_described():
    assert all(f"| `LOSSCLI_{name.upper()}` |" in TEXT for name in FOR_ALL)
    assert all(f"not of `{command}`" in TEXT for command, _ in EXCEPT)
