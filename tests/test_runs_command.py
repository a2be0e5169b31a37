"""`losscli runs` lists, shows and removes saved runs, those that were killed included."""

import json
import os
from pathlib import Path

import pytest

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.runs.holding import held
from tests.fabricated import machine

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


def test_run_that_was_killed_is_listed_with_its_finished_cases(runs, capsys):
    assert main.run(["runs"]) == EXIT_OK
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["name", "state", "created"]
    assert {row.split()[0]: row.split()[1] for row in rows} == {
        "after": "killed",
        "before": "finished",
    }
    assert all(" 8" in row for row in rows)


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


def test_show_writes_to_a_file(runs, capsys):
    assert main.run(["runs", "show", "before", "--json", "-o", "report.json"]) == EXIT_OK
    assert json.loads(Path("report.json").read_text())["kind"] == "bench"
    assert capsys.readouterr().out == ""


def test_show_of_a_killed_run_says_how_to_continue_it(runs, capsys):
    assert main.run(["runs", "show", "after"]) == EXIT_OK
    told = capsys.readouterr()
    assert "custom" in told.out
    assert "`losscli bench --resume after --save after` continues it" in told.err


def test_rm_removes_reports_and_journals(runs, capsys):
    assert main.run(["runs", "rm", "before", "after"]) == EXIT_OK
    assert os.listdir(runs) == []
    assert capsys.readouterr().err == "losscli: removed before\nlosscli: removed after\n"


def test_rm_of_an_unknown_run_removes_none(runs, capsys):
    assert main.run(["runs", "rm", "before", "aftr"]) == EXIT_USAGE
    assert "unknown run 'aftr'. Did you mean 'after'?" in capsys.readouterr().err
    assert len(os.listdir(runs)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "name one run: losscli runs show NAME."),
        (["show", "before", "after"], "name one run"),
        (["rm"], "name the runs to remove: losscli runs rm NAME..."),
        (["remove"], "unknown action 'remove'. Choose from: list, show, rm, merge."),
        (["list", "before"], "takes no 'before'. Did you mean `losscli runs show`?"),
        (["--format", "csv"], "the list is written as table or json, not as csv."),
        (["rm", "../before"], "unknown run '../before'."),
    ],
    ids=str,
)
def test_wrong_arguments_of_runs_are_one_message(runs, capsys, arguments, message):
    assert main.run(["runs", *arguments]) == EXIT_USAGE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
