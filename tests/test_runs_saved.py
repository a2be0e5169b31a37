"""Saved runs are kept and found by name."""

import errno
import os
from pathlib import Path

import pytest

from losscli.errors import UnfitError, UsageError
from losscli.runs.saved import (
    check_run_name,
    find_run,
    prepare,
    runs_directory,
    saved_runs,
)


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"LOSSCLI_DATA_DIR": "/data"}, "/data/runs"),
        ({"LOSSCLI_DATA_DIR": "/data", "XDG_DATA_HOME": "/xdg"}, "/data/runs"),
        ({"XDG_DATA_HOME": "/xdg"}, "/xdg/losscli/runs"),
        ({"XDG_DATA_HOME": "relative"}, "/home/user/.local/share/losscli/runs"),
        ({}, "/home/user/.local/share/losscli/runs"),
    ],
)
def test_the_directory(monkeypatch, environ, directory):
    for name in ("LOSSCLI_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/user", **environ}.items():
        monkeypatch.setenv(name, value)
    assert runs_directory() == Path(directory)


def test_no_test_reads_the_runs_of_the_user(tmp_path_factory):
    assert runs_directory() == tmp_path_factory.getbasetemp() / "data/runs"
    assert saved_runs() == {}


@pytest.mark.parametrize("name", ["base", "v1.2", "2026-01-02_a+b", "0"])
def test_valid_run_names_are_accepted(name):
    assert check_run_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-o", "a/b", "a b", "a.jsonl", "é"])
def test_invalid_run_name_is_refused(name):
    with pytest.raises(UsageError, match="cannot name a run"):
        check_run_name(name)


def test_the_directory_is_made_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "a" / "b"))
    assert saved_runs() == {}
    assert prepare("base") == tmp_path / "a/b/runs/base.jsonl"
    assert (tmp_path / "a/b/runs").is_dir()


def test_directory_that_cannot_be_created_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(UnfitError, match=r"cannot make .*Name another in LOSSCLI_DATA_DIR"):
        prepare("base")


def test_a_home_that_is_nobodys_is_told(monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", "~nosuchuser")
    with pytest.raises(
        UsageError, match=r"LOSSCLI_DATA_DIR is '~nosuchuser', but there is no such"
    ):
        runs_directory()


@pytest.fixture
def locked(tmp_path, monkeypatch):
    """Make a directory without search permission, also for root."""
    real, folder = os.stat, tmp_path / "locked"

    def stat(path, *arguments, **keywords):
        if str(path).startswith(f"{folder}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *arguments, **keywords)

    folder.mkdir()
    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    return folder


def test_directory_without_search_permission_is_an_error(locked, monkeypatch):
    with pytest.raises(UsageError, match=r"cannot read '.*locked/a': Permission denied\.$"):
        find_run(str(locked / "a"))
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(locked))
    with pytest.raises(UsageError, match=r"cannot read '.*locked/runs': Permission denied\.$"):
        saved_runs()


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "file/a"])
def test_impossible_path_does_not_exist(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    Path("file").write_text("")
    with pytest.raises(UsageError, match="there is no run"):
        find_run(name)


def test_a_directory_does_not_hide_a_run_of_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = prepare("base")
    path.write_text("")
    Path("base").mkdir()
    Path("other").mkdir()
    assert find_run("base") == path
    assert find_run("other") == Path("other")


def test_saved_run_is_found_by_name_after_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = prepare("base")
    path.write_text("")
    assert find_run("base") == path
    Path("base").write_text("")
    assert find_run("base") == Path("base")
    for name in ("bas", "base.json", "", "no/base"):
        with pytest.raises(UsageError, match=f"run '{name}'"):
            find_run(name)
