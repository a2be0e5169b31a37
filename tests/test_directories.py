"""No folder of the cache is used that other users can change, whatever is kept there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import losscli
from losscli.build import headers
from losscli.build.cache import user_cache
from losscli.errors import UnfitError
from losscli.files.directories import make_private, weakness_of
from losscli.implementations.sandbox.scratch import scratch_directory
from losscli.judge.cache import user_verdicts
from losscli.judge.device_lock import is_alone
from losscli.judge.job import Job
from tests.judging import verdict, write

USES: dict[str, Callable[[], object]] = {
    "headers": headers.folder,
    "verdicts": user_verdicts,
    "scratch": scratch_directory,
    "locks": lambda: is_alone("cpu"),
    "work": lambda: user_cache().require_private(),
}
"""What is kept in each folder of the cache, by the folder."""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    root = tmp_path / "cache"
    root.mkdir(mode=0o755)
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(root))
    return root


@pytest.fixture(params=USES)
def use(request, cache):
    """Return a folder of the cache, and what uses it."""
    folder = cache / request.param
    folder.mkdir(mode=0o755)
    return folder, USES[request.param]


def test_folder_of_ones_own_is_used_and_one_that_others_can_write_is_not(use):
    folder, act = use
    act()
    for weak in (folder, folder.parent):
        for mode in (0o775, 0o777, 0o1777):
            weak.chmod(mode)
            told = rf"{weak} \(owner \d+, mode {mode:o}\) can be written by other users, who could"
            with pytest.raises(UnfitError, match=rf"{told}.* Run `chmod go-w {weak}` if .*LOSSCLI"):
                act()
        weak.chmod(0o755)


def test_folder_of_another_user_is_refused_but_not_that_of_root(use, monkeypatch):
    folder, act = use
    if os.geteuid() == 0:
        os.chown(folder, 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(
        UnfitError, match=r" belongs to user \d+ \(mode 755\), who could change .*DIR"
    ):
        act()


def test_made_folders_are_no_others_whatever_the_umask_is(cache):
    before = os.umask(0)
    try:
        make_private(cache / "a" / "b")
    finally:
        os.umask(before)
    assert (cache / "a").stat().st_mode & 0o777 == 0o755
    assert (cache / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_verdict_that_others_can_change_is_no_verdict(cache, tmp_path):
    job = Job(file=write(tmp_path, "k.py"), id="a", loss="smooth_l1", device="cpu")
    verdicts = user_verdicts()
    verdicts.keep(job, verdict("WRONG", job.file, id="a"))
    (path,) = verdicts.root.rglob("*.json")
    assert not weakness_of(path)
    path.chmod(0o666)
    with pytest.raises(UnfitError, match=r"\.json \(owner \d+, mode 666\) can be written"):
        verdicts.find(job)


LOOKED_AT = {
    "files/directories.py",
    "build/cache.py",  # looks at it itself, as does each library
    "cli/version.py",  # names it
    "implementations/sandbox/confinement/environment.py",  # names what workers may see
}


def test_nothing_else_uses_the_cache_without_looking_at_it():
    """Other modules take a folder of it by ``private_folder``, and belong into the table above."""
    package = Path(losscli.__file__).parent
    users = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "cache_directory(" in path.read_text()
    }
    assert users <= LOOKED_AT
