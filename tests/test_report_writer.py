"""The writer: nothing that was finished is lost, and no output is found unwritable too late."""

import json
import os
from pathlib import Path

import pytest
from test_report_bench import PAIR, run

from losscli.errors import UnfitError
from losscli.report import render
from losscli.report.writer import Writer


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_without_an_output_the_report_goes_to_standard_output(capsys):
    with Writer(run(), "table", None) as writer:
        for result in PAIR:
            writer.add(result)
        assert capsys.readouterr().out == ""
    assert capsys.readouterr().out == render(run(*PAIR), "table") + "\n"


def test_each_result_is_on_disk_before_the_next_begins(tmp_path):
    journal = tmp_path / "table.txt.jsonl"
    with Writer(run(), "table", tmp_path / "table.txt") as writer:
        assert [record["kind"] for record in lines(journal)] == ["bench"]
        writer.add(PAIR[0])
        assert [r["implementation"] for r in lines(journal)[1:]] == ["reference"]
        writer.add(PAIR[1])
        assert [r["implementation"] for r in lines(journal)[1:]] == ["reference", "custom"]
    assert (tmp_path / "table.txt").read_text() == render(run(*PAIR), "table") + "\n"
    assert len(lines(journal)) == 3  # it has the samples, which the table has not


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_the_journal_goes_where_the_output_holds_it_all(tmp_path, format):
    with Writer(run(), format, tmp_path / "out") as writer:
        writer.add(PAIR[0])
    assert os.listdir(tmp_path) == ["out"]


def test_an_interrupt_keeps_what_was_finished(tmp_path):
    output = tmp_path / "out.json"

    def finish_one():
        with Writer(run(), "json", output) as writer:
            writer.add(PAIR[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish_one()
    (result,) = json.loads(output.read_text())["results"]
    assert result["implementation"] == "reference"


def test_an_error_before_the_first_result_leaves_an_old_output_alone(tmp_path, capsys):
    output = tmp_path / "out.md"
    output.write_text("old")
    with pytest.raises(ValueError, match="too early"), Writer(run(), "md", output):
        raise ValueError("too early")
    assert os.listdir(tmp_path) == ["out.md"]
    assert output.read_text() == "old"
    assert capsys.readouterr().out == ""


def test_an_output_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(UnfitError, match=r"cannot write .*No such file or directory. Choose"):
        Writer(run(), "json", tmp_path / "missing" / "out.json")


def test_a_link_keeps_pointing_at_its_file(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    with Writer(run(), "json", link) as writer:
        writer.add(PAIR[0])
    assert link.is_symlink()
    assert json.loads(real.read_text())["kind"] == "bench"


def test_a_device_is_written_to_and_never_replaced():
    with Writer(run(), "json", Path(os.devnull)) as writer:
        writer.add(PAIR[0])
    assert Path(os.devnull).is_char_device()
    assert not Path(f"{os.devnull}.jsonl").exists()
