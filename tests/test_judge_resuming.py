"""An output is continued: finished jobs are known, and a torn last line is repaired."""

import pytest

from losscli.errors import UsageError
from losscli.judge.batch import read_finished
from losscli.runs.encoding import json_line
from tests.judging import RIGHT, WRONG

LINES = "".join(f"{json_line(each.to_json())}\n" for each in (RIGHT, WRONG))


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.jsonl"


def test_finished_verdicts_are_read_and_the_last_line_is_repaired(output):
    assert read_finished(output) == []  # which is not there
    for text in (LINES, LINES.rstrip("\n")):
        output.write_text(text)
        assert read_finished(output) == [RIGHT, WRONG]
        assert output.read_text() == LINES
    whole, _, last = LINES.rstrip("\n").partition("\n")
    for left in (1, 20, 300):
        output.write_text(f"{whole}\n{last[:left]}")
        assert read_finished(output) == [RIGHT]
        assert output.read_text() == f"{whole}\n"


def test_line_that_is_damaged_is_named_and_a_directory_refused(output, tmp_path):
    output.write_text(f'{{"id": 3}}\n{LINES}')
    with pytest.raises(UsageError, match=r"out\.jsonl:1: this line is not a verdict"):
        read_finished(output)
    assert output.read_text().endswith(LINES)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_finished(tmp_path)
