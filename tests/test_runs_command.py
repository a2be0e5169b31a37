"""`losscli runs` lists, shows and removes saved runs, those that were killed included."""

import json
import os
from pathlib import Path

import pytest

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.runs.holding import held
from tests.fabricated import elsewhere, machine

JOURNAL = ".jsonl.journal.jsonl"


@pytest.fixture
def runs(write):
    """Save a run ``before``, and leave the journal of ``after``; return their folder."""
    write("data/runs/before.jsonl", machine(1), "jsonl")
    write(f"data/runs/after{JOURNAL}", machine(2), "jsonl")
    return Path("data/runs")


def states(capsys):
    assert main.run(["runs", "--json"]) == EXIT_OK
    return {run["name"]: run["state"] for run in json.loads(capsys.readouterr().out)}


def test_list_has_finished_killed_and_damaged_runs(runs, write, capsys):
    commit = elsewhere(machine(1), commit="0123456789ab")
    write("data/runs/again.jsonl", commit, "jsonl")
    write(f"data/runs/again{JOURNAL}", machine(3), "jsonl")
    os.utime("data/runs/again.jsonl", (0, 0))
    assert main.run(["runs"]) == EXIT_OK
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["name", "state", "created"]
    facts = ["2026-01-02T03:04:05+00:00", "A", "CPU", "8"]
    assert sorted(row.split() for row in rows) == [
        ["after", "killed", *facts],
        ["again", *["finished,", "a", "later", "one", "was", "killed"], *facts, "0123456789ab"],
        ["before", "finished", *facts],
    ]
    Path("data/runs/bad.jsonl").write_text("bad")
    assert main.run(["runs", "--format", "json"]) == EXIT_OK
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["before"]["problem"] is None
    assert "is not a result of losscli" in listed["bad"]["problem"]
    assert listed["before"]["path"].endswith("data/runs/before.jsonl")


def test_without_saved_runs_the_directory_is_named(write, capsys):
    assert main.run(["runs"]) == EXIT_OK
    told = capsys.readouterr()
    assert told.out == ""
    assert "data/runs. `losscli bench --save NAME` saves one." in told.err


def test_run_that_is_being_written_is_listed_as_running(runs, capsys):
    with held(runs / "after.jsonl"):
        assert states(capsys) == {"after": "running", "before": "finished"}
        assert main.run(["runs", "rm", "after"]) == EXIT_USAGE
        assert "the run 'after' is running. Stop it first." in capsys.readouterr().err
    assert states(capsys)["after"] == "killed"


def test_show_writes_the_report_of_a_run(runs, capsys):
    assert main.run(["runs", "show", "before"]) == EXIT_OK
    assert "custom" in capsys.readouterr().out
    assert main.run(["runs", "show", "before", "--format", "csv"]) == EXIT_OK
    assert capsys.readouterr().out.startswith("loss,")
    assert main.run(["runs", "show", "before", "--json", "-o", "report.json"]) == EXIT_OK
    assert json.loads(Path("report.json").read_text())["kind"] == "bench"
    assert capsys.readouterr().out == ""
    assert main.run(["runs", "show", "after"]) == EXIT_OK
    told = capsys.readouterr()
    assert "custom" in told.out
    assert "`losscli bench --resume after --save after` continues it" in told.err


def test_rm_removes_reports_and_journals(runs, capsys):
    assert main.run(["runs", "rm", "before", "after"]) == EXIT_OK
    assert os.listdir(runs) == []
    assert capsys.readouterr().err == "losscli: removed before\nlosscli: removed after\n"


WRONG = {
    "rm before aftr": "unknown run 'aftr'. Did you mean 'after'?",
    "show": "name one run: losscli runs show NAME.",
    "show before after": "name one run",
    "rm": "name the runs to remove: losscli runs rm NAME...",
    "remove": "unknown action 'remove'. Choose from: list, show, rm, merge.",
    "list before": "takes no 'before'. Did you mean `losscli runs show`?",
    "--format csv": "the list is written as table or json, not as csv.",
    "rm ../before": "unknown run '../before'.",
}


def test_wrong_arguments_of_runs_are_one_message_and_remove_nothing(runs, refused):
    for arguments, message in WRONG.items():
        refused(f"runs {arguments}", message)
    assert len(os.listdir(runs)) == 2
