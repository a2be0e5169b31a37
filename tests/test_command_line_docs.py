"""docs/command-line.md tells of every exit code, shell and variable."""

import re

from losscli import errors
from losscli.cli.completion import SHELLS
from losscli.cli.options import FORMATS
from losscli.cli.variables import EXCEPT, FOR_ALL
from tests.documents import ROOT

TEXT = (ROOT / "docs" / "command-line.md").read_text()


def test_every_exit_code_is_described():
    codes = {code for name, code in vars(errors).items() if name.startswith("EXIT_")}
    assert codes == set(map(int, re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)))


def test_every_shell_and_format_is_described():
    assert all(f"losscli completion {shell}" in TEXT for shell in SHELLS)
    assert all(f"| `{format}` |" in TEXT for format in FORMATS)


def test_variables_for_all_commands_are_described():
    assert all(f"| `LOSSCLI_{name.upper()}` |" in TEXT for name in FOR_ALL)
    assert all(f"not of `{command}`" in TEXT for command, _ in EXCEPT)
