import errno
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from losscli.cli import main
from losscli.console.notes import note
from losscli.console.streams import emit, tell
from losscli.errors import EXIT_BROKEN_PIPE, EXIT_OK, EXIT_UNFIT, UsageError
from losscli.render.output import show
from losscli.render.records import Writer
from losscli.report.verdict_writer import VerdictWriter
from losscli.runs.saved import runs_directory
from tests.handmade import PAIR, run
from tests.judging import RIGHT, verdict

TEXT = "±3 µs at 31 °C, ”…\udcff"


def raise_usage_error(text: str) -> None:
    raise UsageError(text)


WAYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "emit": ("stdout", emit),
    "show": ("stdout", show),
    "print": ("stdout", print),
    "tell": ("stderr", tell),
    "note": ("stderr", note),
    "error": ("stderr", raise_usage_error),
}
"""How a command writes text: the stream, and a function that does it."""


@pytest.fixture
def losscli(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Run a command that does something; return its exit code."""

    def call(action: Callable[[], Any]) -> int:
        command = click.Command("bench", callback=action)
        monkeypatch.setattr(main._LazyGroup, "get_command", lambda *_: command)
        return main.run(["bench"])

    return call


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("way", WAYS)
def test_characters_that_a_stream_cannot_hold_are_escaped(monkeypatch, losscli, way, encoding):
    name, write = WAYS[way]
    held = io.BytesIO()
    monkeypatch.setattr(sys, name, io.TextIOWrapper(held, encoding))
    losscli(lambda: write(TEXT))
    assert TEXT.encode(encoding, "backslashreplace") in held.getvalue()


def write_run(format: str, output: Path | None) -> None:
    with Writer(run(), format, output) as writer:
        for result in PAIR:
            writer.add(result)


def write_verdicts(format: str, output: Path | None) -> None:
    with VerdictWriter(format, output) as writer:
        writer.add(RIGHT)
        writer.add(verdict("WRONG"))


REPORTS = [
    *((write_run, format, 1 + len(PAIR)) for format in ("table", "md", "csv", "json", "jsonl")),
    *((write_verdicts, format, 1) for format in ("table", "jsonl")),  # the first is written at once
    (write_verdicts, "json", 2),
]
"""What writes a report, its format, and the lines of the record that is kept."""
IDS = [f"{write.__name__}-{format}" for write, format, _ in REPORTS]


def unprinted() -> list[list[Any]]:
    """Return the records that are kept, each as its lines."""
    files = (runs_directory().parent / "unprinted").glob("*")
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


class Broken(io.TextIOWrapper):
    """A stream that cannot be written; it knows what was on disk when a report came."""

    def __init__(self, error: OSError) -> None:
        super().__init__(io.BytesIO(), "utf-8")
        self.error = error
        self.kept: list[list[Any]] = []

    def write(self, text: str) -> int:
        self.kept = unprinted()
        raise self.error


@pytest.fixture(autouse=True)
def empty_data_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EPIPE, EXIT_BROKEN_PIPE), (errno.ENOSPC, EXIT_UNFIT), (errno.EIO, EXIT_UNFIT)],
    ids=["closed pipe", "full disk", "lost terminal"],
)
@pytest.mark.parametrize(("write", "format", "lines"), REPORTS, ids=IDS)
def test_results_that_cannot_be_printed_are_kept(
    monkeypatch, capsys, losscli, write, format, lines, number, code
):
    stream = Broken(OSError(number, os.strerror(number)))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        assert losscli(lambda: write(format, None)) == code
    (record,) = unprinted()
    assert len(record) == lines
    assert stream.kept == [record] or lines == 1
    told = capsys.readouterr().err
    assert told.startswith(f"losscli: {runs_directory().parent / 'unprinted'}")
    assert told.splitlines()[0].endswith(" holds the finished results")


@pytest.mark.parametrize(("write", "format", "lines"), REPORTS, ids=IDS)
def test_results_that_are_printed_are_kept_nowhere_else(losscli, write, format, lines):
    assert losscli(lambda: write(format, None)) == EXIT_OK
    assert unprinted() == []


def test_results_are_kept_in_another_folder_where_there_is_no_home(
    monkeypatch, tmp_path, capsys, losscli
):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", "/dev/null/data")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Broken(OSError(errno.ENOSPC, "full")))
        assert losscli(lambda: write_run("table", None)) == EXIT_UNFIT
    (kept,) = tmp_path.glob("bench-*.jsonl")
    assert f"losscli: {kept} holds the finished results" in capsys.readouterr().err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_notes_that_cannot_be_written_end_no_command(monkeypatch, losscli, number):
    monkeypatch.setattr(sys, "stderr", Broken(OSError(number, os.strerror(number))))
    assert losscli(lambda: note("nobody reads this")) == EXIT_OK
