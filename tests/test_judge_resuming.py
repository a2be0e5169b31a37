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


def test_verdicts_are_read_as_they_were_written(output):
    output.write_text(LINES)
    assert read_finished(output) == [RIGHT, WRONG]
    assert output.read_text() == LINES


def test_output_that_is_not_there_has_none(output):
    assert read_finished(output) == []


@pytest.mark.parametrize("left", [1, 20, 300])
def test_torn_last_line_is_cut_off(output, left):
    whole, _, last = LINES.rstrip("\n").partition("\n")
    output.write_text(f"{whole}\n{last[:left]}")
    assert read_finished(output) == [RIGHT]
    assert output.read_text() == f"{whole}\n"


def test_last_line_without_its_end_is_completed(output):
    output.write_text(LINES.rstrip("\n"))
    assert read_finished(output) == [RIGHT, WRONG]
    assert output.read_text() == LINES


def test_line_that_is_damaged_is_named(output):
    output.write_text(f'{{"id": 3}}\n{LINES}')
    with pytest.raises(UsageError, match=r"out\.jsonl:1: this line is not a verdict"):
        read_finished(output)
    assert output.read_text().endswith(LINES)


def test_directory_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_finished(tmp_path)
