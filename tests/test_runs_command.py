import errno
import json
import os
from pathlib import Path

import pytest

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE, UnfitError, UsageError
from losscli.runs.files import held
from losscli.runs.saved import check_run_name, find_run, prepare, runs_directory, saved_runs
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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_directory(monkeypatch):
    usual = "/home/user/.local/share/losscli/runs"
    monkeypatch.setenv("HOME", "/home/user")
    for own, xdg, directory in (
        ("/data", None, "/data/runs"),
        ("/data", "/xdg", "/data/runs"),
        (None, "/xdg", "/xdg/losscli/runs"),
        (None, "relative", usual),
        (None, None, usual),
    ):
        for name, value in (("LOSSCLI_DATA_DIR", own), ("XDG_DATA_HOME", xdg)):
            monkeypatch.delenv(name, raising=False)
            if value:
                monkeypatch.setenv(name, value)
        assert runs_directory() == Path(directory)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", "~nosuchuser")
    with pytest.raises(UsageError, match=r"LOSSCLI_DATA_DIR is '~nosuchuser', but there is no s"):
        runs_directory()


def test_no_test_reads_the_runs_of_the_user(tmp_path_factory):
    assert runs_directory() == tmp_path_factory.getbasetemp() / "data/runs"
    assert saved_runs() == {}


def test_names_of_runs_and_paths_that_are_impossible(folder):
    for name in ("base", "v1.2", "2026-01-02_a+b", "0"):
        assert check_run_name(name) == name
    for name in ("", ".", "..", ".hidden", "-o", "a/b", "a b", "a.jsonl", "é"):
        with pytest.raises(UsageError, match="cannot name a run"):
            check_run_name(name)
    Path("file").write_text("")
    for name in ("a" * 300, "a\0b", "file/a"):
        with pytest.raises(UsageError, match="there is no run"):
            find_run(name)


def test_the_directory_is_made_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "a" / "b"))
    assert saved_runs() == {}
    assert prepare("base") == tmp_path / "a/b/runs/base.jsonl"
    assert (tmp_path / "a/b/runs").is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(UnfitError, match=r"cannot make .*Name another in LOSSCLI_DATA_DIR"):
        prepare("base")


def test_directory_without_search_permission_is_an_error(folder, monkeypatch):
    """Also for root, for whom no directory lacks it."""
    real, locked = os.stat, folder / "locked"

    def stat(path, *arguments, **keywords):
        if str(path).startswith(f"{locked}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *arguments, **keywords)

    locked.mkdir()
    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(UsageError, match=r"cannot read '.*locked/a': Permission denied\.$"):
        find_run(str(locked / "a"))
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(locked))
    with pytest.raises(UsageError, match=r"cannot read '.*locked/runs': Permission denied\.$"):
        saved_runs()


def test_saved_run_is_found_by_name_after_files_and_before_directories(folder):
    path = prepare("base")
    path.write_text("")
    for name in ("base", "other"):
        Path(name).mkdir()
    assert find_run("base") == path
    assert find_run("other") == Path("other")
    Path("base").rmdir()
    Path("base").write_text("")
    assert find_run("base") == Path("base")
    for name in ("bas", "base.json", "", "no/base"):
        with pytest.raises(UsageError, match=f"run '{name}'"):
            find_run(name)
