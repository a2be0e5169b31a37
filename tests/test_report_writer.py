import errno
import json
import os
from pathlib import Path

import pytest

from losscli.errors import UnfitError, UsageError
from losscli.render.output import LARGEST_SUMMARY, STEP_SUMMARY, publish
from losscli.render.records import Writer, render
from losscli.runs.journal import Journal, journal_path, refuse_unreported
from tests.handmade import PAIR, run


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(output, format="json", results=PAIR[:1], error=None):
    """Write a run of these results, which then fails with an error."""
    with Writer(run(), format, output) as writer:
        for result in results:
            writer.add(result)
        if error:
            raise error


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out"


def test_without_an_output_the_report_goes_to_standard_output(capsys):
    with Writer(run(), "table", None) as writer:
        for result in PAIR:
            writer.add(result)
        assert capsys.readouterr().out == ""
    assert capsys.readouterr().out == render(run(*PAIR), "table") + "\n"


def test_each_result_is_on_disk_before_the_next_begins(output):
    journal = journal_path(output)
    with Writer(run(), "table", output) as writer:
        assert [record["kind"] for record in lines(journal)] == ["bench"]
        writer.add(PAIR[0])
        assert [r["implementation"] for r in lines(journal)[1:]] == ["reference"]
        writer.add(PAIR[1])
        assert [r["implementation"] for r in lines(journal)[1:]] == ["reference", "custom"]
    assert output.read_text() == render(run(*PAIR), "table") + "\n"
    assert len(lines(journal)) == 3  # it has the samples, which the table has not


def test_journal_is_removed_if_the_output_has_all_results_and_replaced_after_a_report(output):
    for format in ("json", "jsonl"):
        write(output, format)
        assert os.listdir(output.parent) == ["out"]
    for _ in range(2):
        write(output, "md")
    assert len(lines(journal_path(output))) == 2


def test_interrupt_keeps_finished_results(output):
    with pytest.raises(KeyboardInterrupt):
        write(output, error=KeyboardInterrupt())
    (result,) = json.loads(output.read_text())["results"]
    assert result["implementation"] == "reference"


def test_without_a_result_an_old_output_stays_and_nothing_is_printed(output, capsys):
    output.write_text("old")
    with pytest.raises(ValueError, match="too early"):
        write(output, "md", (), ValueError("too early"))
    for path in (output, None):
        write(path, "md", ())
    assert os.listdir(output.parent) == ["out"]
    assert output.read_text() == "old"
    assert capsys.readouterr().out == ""


def test_an_output_that_cannot_be_written_is_refused_at_once(output):
    with pytest.raises(UnfitError, match=r"cannot write .*No such file or directory. Choose"):
        Writer(run(), "json", output / "out.json")


def test_link_device_and_pipe_are_written_and_never_replaced(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    write(link)
    assert link.is_symlink()
    assert json.loads(real.read_text())["kind"] == "bench"
    write(Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    assert not journal_path(Path(os.devnull)).exists()
    reader, writer_end = os.pipe()
    pipe = tmp_path / "stdout"
    pipe.symlink_to(f"/dev/fd/{writer_end}")
    write(pipe, "csv")
    assert os.read(reader, 10) == b"loss,shape"
    assert sorted(os.listdir(tmp_path)) == ["link.json", "real.json", "stdout"]
    os.close(reader)
    os.close(writer_end)


def test_the_journal_of_a_run_that_was_killed_is_kept(output, tmp_path):
    saved = tmp_path / "v1.2.jsonl"
    for file, name, said in (
        (output, "", r"out\.journal\.jsonl holds .* --resume .*/out, move the file away"),
        # That of a saved run is known by the name of the run.
        (saved, "v1.2", r"--resume v1\.2, move the file .* choose another --save\.$"),
    ):
        journal = journal_path(file)
        journal.write_text("finished cases")
        with pytest.raises(UsageError, match=said):
            refuse_unreported("bench", file, name)
        assert journal.read_text() == "finished cases"


def test_only_the_output_is_replaced_and_it_keeps_its_permissions(output, tmp_path):
    other = tmp_path / "out.partial"
    output.write_text("old")
    output.chmod(0o640)
    other.write_text("theirs")
    write(output)
    assert sorted(os.listdir(tmp_path)) == ["out", "out.partial"]
    assert other.read_text() == "theirs"
    assert output.stat().st_mode & 0o777 == 0o640


def test_a_full_disk_leaves_the_journal_and_says_so(output, monkeypatch, capsys):
    def fill(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def finish_one():
        with Writer(run(), "json", output) as writer:
            writer.add(PAIR[0])
            monkeypatch.setattr(os, "replace", fill)

    with pytest.raises(UnfitError, match=r"out: No space left on device\. Name another file"):
        finish_one()
    monkeypatch.undo()
    told = capsys.readouterr().err
    assert told == f"losscli: {journal_path(output)} holds the finished results\n"
    assert os.listdir(output.parent) == ["out.journal.jsonl"]
    assert len(lines(journal_path(output))) == 2
    with pytest.raises(UnfitError, match=r"^cannot write /dev/full: No space left on device\. Na"):
        write(Path("/dev/full"))


def test_a_result_that_a_full_disk_cuts_off_is_kept_elsewhere(
    output, tmp_path, monkeypatch, capsys
):
    """The journal has only a part of the result, so it is not named."""
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))
    replace = os.replace

    def fill(source, target):
        if str(target) == str(output):
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        replace(source, target)

    def cut_off(journal, result):
        journal.path.write_text('{"kind": "be')
        raise UnfitError("cannot write the journal: File too large.")

    def finish_one():
        with Writer(run(), "json", output) as writer:
            writer.add(PAIR[0])
            monkeypatch.setattr(os, "replace", fill)
            monkeypatch.setattr(Journal, "add", cut_off)
            writer.add(PAIR[1])

    with pytest.raises(UnfitError, match="File too large"):
        finish_one()
    (whole,) = (tmp_path / "data").rglob("*.jsonl")
    assert capsys.readouterr().err == f"losscli: {whole} holds the finished results\n"
    assert [r["implementation"] for r in lines(whole)[1:]] == ["reference", "custom"]


def test_outside_github_actions_nothing_is_rendered():
    publish("bench", lambda: pytest.fail("rendered"), {})


def test_each_report_is_appended_under_its_title(tmp_path):
    environ = {STEP_SUMMARY: str(tmp_path / "summary.md")}
    for title in ("bench", "compare"):
        publish(title, lambda: "| a |", environ)
    assert (tmp_path / "summary.md").read_text() == (
        "## losscli bench\n\n| a |\n\n## losscli compare\n\n| a |\n\n"
    )


def test_summary_that_is_too_long_is_cut_after_a_line(tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("x" * 1000)
    publish("bench", lambda: "é" * 99 + "\n" + "| row |\n" * 200_000, {STEP_SUMMARY: str(summary)})
    text = summary.read_text()
    assert LARGEST_SUMMARY - 200 < len(text.encode()) <= LARGEST_SUMMARY
    assert text.endswith("| row |\n\nThe rest is too long for a step summary.\n\n")
