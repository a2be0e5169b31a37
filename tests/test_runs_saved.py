"""Saved runs are kept and found by name."""

import errno
import os
from pathlib import Path

import pytest

from losscli.errors import UnfitError, UsageError
from losscli.runs.saved import check_run_name, find_run, prepare, runs_directory, saved_runs


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


def test_names_of_runs():
    for name in ("base", "v1.2", "2026-01-02_a+b", "0"):
        assert check_run_name(name) == name
    for name in ("", ".", "..", ".hidden", "-o", "a/b", "a b", "a.jsonl", "é"):
        with pytest.raises(UsageError, match="cannot name a run"):
            check_run_name(name)


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


def test_impossible_path_does_not_exist(folder):
    Path("file").write_text("")
    for name in ("a" * 300, "a\0b", "file/a"):
        with pytest.raises(UsageError, match="there is no run"):
            find_run(name)
