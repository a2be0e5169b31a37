"""Names and texts of others reach a terminal, and a spreadsheet, as text alone."""

import csv
import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.console import notes
from losscli.doctor.findings import Examination, Finding
from losscli.judge.pool import LocalPool
from losscli.render.data import as_csv
from losscli.render.exports import EXPORTS
from losscli.render.output import publish
from losscli.render.records import render
from losscli.render.text import lay_out, text
from losscli.runs.records import Run
from losscli.views import doctor
from tests.fabricated import machine
from tests.judging import COMMAND, ROOT, write

EVIL = "k\x1b[2J\x08\x9b\u202e\rRIGHT"
FORGED = "RIGHT  forged.py"


def assert_shown(text: str) -> None:
    """Hold that a terminal obeys nothing of a text, which nevertheless names what it is about."""
    assert_harmless(text)
    assert r"\x1b[2J" in text


def assert_harmless(text: str) -> None:
    assert [c for c in text if not c.isprintable() and c not in "\n\t"] == []


def evil_run() -> Run:
    made = machine(1, samples=3)
    renamed = [
        replace(r, implementation=EVIL) if r.implementation == "custom" else r for r in made.results
    ]
    return replace(made, results=tuple(renamed), environment={**made.environment, "cpu": EVIL})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LOSSCLI_QUIET", raising=False)
    return tmp_path


def judged(folder: Path, *more: str) -> list[str]:
    """Return a command that judges files with names of others."""
    jobs = [
        {"file": write(folder, f"{EVIL}.py", "WRONG"), "id": f"{EVIL}\n{FORGED}"},
        {"file": write(folder, f"a\n{FORGED}", "WRONG"), "id": "b"},
        {"file": f"missing{EVIL}.py", "id": EVIL},
        {"file": write(folder, "n.py", "notes"), "id": "c"},
    ]
    path = folder / "jobs.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in jobs))
    return ["judge", "--jobs", str(path), "--workers", "1", "--no-cache", *more]


@pytest.mark.parametrize("more", [("--format", "table"), ("-o", "out.txt", "--format", "table")])
def test_verdicts_and_their_notes_are_shown(folder, more, monkeypatch, capfd):
    monkeypatch.setitem(LocalPool.__init__.__kwdefaults__, "command", COMMAND)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAKE_JUDGE_LOG", str(folder / "log"))
    main.run([part.replace("out.txt", str(folder / "out.txt")) for part in judged(folder, *more)])
    out, err = capfd.readouterr()
    text = (folder / "out.txt").read_text() if "-o" in more else out
    assert_shown(text + err)
    assert FORGED not in map(str.strip, (text + err).split("\n"))


@pytest.mark.parametrize(
    "arguments",
    [
        *(["report", f"/{EVIL}"], ["bench", "--impl", f"{EVIL}.py"], ["judge", EVIL]),
        *(["config", "check", "config.yaml"], ["verify", f"--{EVIL}"]),
        *(["runs"], ["runs", "show", EVIL]),
    ],
    ids=lambda given: given[0],
)
def test_messages_and_lists_are_shown(folder, arguments, capsys):
    (folder / "config.yaml").write_text('"\\e[2J\\b\\r": 1\n')
    runs = folder / "data" / "runs"
    runs.mkdir(parents=True)
    (runs / f"{EVIL}.jsonl").write_text(render(evil_run(), "jsonl"))
    main.run(arguments)
    assert_shown("".join(capsys.readouterr()))


def test_reports_are_shown(folder, capsys):
    (folder / "data" / "runs").mkdir(parents=True)
    (folder / "data" / "runs" / "r.jsonl").write_text(render(evil_run(), "jsonl"))
    for format in ("table", "md", "csv", "json", "jsonl"):
        for more in ([], ["-o", "out"]):
            assert main.run(["runs", "show", "r", "--format", format, *more]) == 0
            assert_harmless((folder / "out").read_text() if more else capsys.readouterr().out)


def test_page_and_metrics_hold_nothing_that_a_terminal_obeys(folder, capsysbinary):
    (folder / "r.jsonl").write_text(render(evil_run(), "jsonl"))
    assert main.run(["report", "r.jsonl"]) == 0
    assert_harmless(capsysbinary.readouterr().out.decode())
    text = EXPORTS["openmetrics"](evil_run())
    assert r"\\x1b[2J" in text
    assert "\x1b" not in text


def test_status_and_notes_are_shown(monkeypatch, capsys):
    monkeypatch.delenv("LOSSCLI_QUIET", raising=False)
    monkeypatch.setattr(notes, "has_status", lambda: True)
    monkeypatch.setattr(notes, "_CLEAR", "")
    monkeypatch.setattr(notes, "_shown", "")
    notes.status(f"{EVIL}\n{FORGED}")
    notes.note(EVIL)
    text = capsys.readouterr().err
    assert_shown(text)
    assert text.count("\n") == 1


def test_findings_of_the_doctor_and_summaries_are_shown(tmp_path):
    finding = Finding("GPU", "processes", "ok", EVIL, "")
    found = Examination(command=(), created="", asked_device="cpu", device="cpu", results=[finding])
    assert_shown(text(doctor.view(found)))
    publish("bench", lambda: EVIL, {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")})
    assert_shown((tmp_path / "summary").read_text())


def test_cell_of_a_table_is_one_line():
    table = lay_out(["file"], [[f"a\n{FORGED}"], ["b\tc"], [EVIL]])
    assert_shown(table)
    assert len(table.splitlines()) == 5


CELLS = {
    "=1+1": "'=1+1",
    "+cmd|' /C calc'!A0": "'+cmd|' /C calc'!A0",
    "-a.py": "'-a.py",
    "@SUM(1)": "'@SUM(1)",
    "\t=1": "'\t=1",
    "\r=1": r"\r=1",
    "a=b": "a=b",
    "": "",
    "-1.5e3": "-1.5e3",
}


def test_cell_that_a_spreadsheet_would_compute_is_text():
    rows = [{"cell": given, "figure": -1.5} for given in CELLS]
    written = list(csv.DictReader(io.StringIO(as_csv(("cell", "figure"), rows), newline="")))
    assert [row["cell"] for row in written] == [*CELLS.values()]
    assert {row["figure"] for row in written} == {"-1.5"}
