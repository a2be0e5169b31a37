"""Commands print what the transcripts in data/golden say: a new case is a new line with `$`."""

import re
import shlex

import pytest

from losscli.cli import main
from tests.conftest import GOLDEN


@pytest.mark.parametrize("name", ["wrong_usage.txt", "wrong_options.txt", "wrong_filters.txt"])
def test_commands_print_what_a_transcript_says(name, golden, capsys):
    text = ""
    for line in (GOLDEN / name).read_text().splitlines():
        if line.startswith("$ losscli "):
            code = main.run(shlex.split(line)[2:])
            told = "".join(capsys.readouterr())
            told = re.sub("(Choose from: ).*", r"\1...", told)  # whatever losses there are
            text += f"{line}\n{told}exit code {code}\n\n"
    golden(name, text)
