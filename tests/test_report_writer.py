"""The writer keeps every finished result, and refuses an unwritable output at once."""

import errno
import json
import os
from pathlib import Path

import pytest

from losscli.errors import UnfitError, UsageError
from losscli.report.render import render
from losscli.report.writer import Writer
from losscli.runs.journal import journal_path
from tests.handmade import PAIR, run


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_without_an_output_the_report_goes_to_standard_output(capsys):
    with Writer(run(), "table", None) as writer:
        for result in PAIR:
            writer.add(result)
        assert capsys.readouterr().out == ""
    assert capsys.readouterr().out == render(run(*PAIR), "table") + "\n"


def test_each_result_is_on_disk_before_the_next_begins(tmp_path):
    journal = tmp_path / "table.txt.journal.jsonl"
    with Writer(run(), "table", tmp_path / "table.txt") as writer:
        assert [record["kind"] for record in lines(journal)] == ["bench"]
        writer.add(PAIR[0])
        assert [r["implementation"] for r in lines(journal)[1:]] == ["reference"]
        writer.add(PAIR[1])
        assert [r["implementation"] for r in lines(journal)[1:]] == ["reference", "custom"]
    assert (tmp_path / "table.txt").read_text() == render(run(*PAIR), "table") + "\n"
    assert len(lines(journal)) == 3  # it has the samples, which the table has not


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_journal_is_removed_if_the_output_has_all_results(tmp_path, format):
    with Writer(run(), format, tmp_path / "out") as writer:
        writer.add(PAIR[0])
    assert os.listdir(tmp_path) == ["out"]


def test_interrupt_keeps_finished_results(tmp_path):
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


def test_link_keeps_its_target(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    with Writer(run(), "json", link) as writer:
        writer.add(PAIR[0])
    assert link.is_symlink()
    assert json.loads(real.read_text())["kind"] == "bench"


def test_device_file_is_written_and_never_replaced():
    with Writer(run(), "json", Path(os.devnull)) as writer:
        writer.add(PAIR[0])
    assert Path(os.devnull).is_char_device()
    assert not Path(f"{os.devnull}.journal.jsonl").exists()


def test_pipe_behind_a_link_is_written(tmp_path):
    reader, writer_end = os.pipe()
    link = tmp_path / "stdout"
    link.symlink_to(f"/dev/fd/{writer_end}")
    with Writer(run(), "csv", link) as writer:
        writer.add(PAIR[0])
    assert os.read(reader, 10) == b"loss,shape"
    assert os.listdir(tmp_path) == ["stdout"]
    os.close(reader)
    os.close(writer_end)


def test_without_a_result_an_old_output_stays_and_nothing_is_printed(tmp_path, capsys):
    output = tmp_path / "out.md"
    output.write_text("old")
    for path in (output, None):
        with Writer(run(), "md", path):
            pass
    assert os.listdir(tmp_path) == ["out.md"]
    assert output.read_text() == "old"
    assert capsys.readouterr().out == ""


def test_the_journal_of_a_run_that_was_killed_is_kept(tmp_path):
    journal = tmp_path / "out.journal.jsonl"
    journal.write_text("finished cases")
    with pytest.raises(
        UsageError, match=r"out\.journal\.jsonl holds .* --resume .*/out, move the file away"
    ):
        Writer(run(), "json", tmp_path / "out")
    assert journal.read_text() == "finished cases"


def test_the_journal_of_a_saved_run_is_known_by_the_name_of_the_run(tmp_path):
    saved = tmp_path / "v1.2.jsonl"
    journal_path(saved).write_text("finished cases")
    with pytest.raises(
        UsageError, match=r"--resume v1\.2, move the file away or choose another --save\.$"
    ):
        Writer(run(), "json", None, saved=saved)


def test_the_journal_of_a_run_that_was_reported_is_replaced(tmp_path):
    for _ in range(2):
        with Writer(run(), "md", tmp_path / "out") as writer:
            writer.add(PAIR[0])
    assert len(lines(tmp_path / "out.journal.jsonl")) == 2


def test_only_the_output_is_replaced_and_it_keeps_its_permissions(tmp_path):
    output, other = tmp_path / "out", tmp_path / "out.partial"
    output.write_text("old")
    output.chmod(0o640)
    other.write_text("theirs")
    with Writer(run(), "json", output) as writer:
        writer.add(PAIR[0])
    assert sorted(os.listdir(tmp_path)) == ["out", "out.partial"]
    assert other.read_text() == "theirs"
    assert output.stat().st_mode & 0o777 == 0o640


def test_a_full_disk_leaves_the_journal_and_says_so(tmp_path, monkeypatch, capsys):
    def fill(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def finish_one():
        with Writer(run(), "json", tmp_path / "out") as writer:
            writer.add(PAIR[0])
            monkeypatch.setattr(os, "replace", fill)

    with pytest.raises(UnfitError, match=r"out: No space left on device\. Name another file"):
        finish_one()
    told = capsys.readouterr().err
    assert told == f"losscli: {tmp_path}/out.journal.jsonl holds the finished results\n"
    assert os.listdir(tmp_path) == ["out.journal.jsonl"]
    assert len(lines(tmp_path / "out.journal.jsonl")) == 2


def test_a_full_device_is_named():
    with (
        pytest.raises(UnfitError, match=r"^cannot write /dev/full: No space left on device\. Name"),
        Writer(run(), "json", Path("/dev/full")) as writer,
    ):
        writer.add(PAIR[0])
