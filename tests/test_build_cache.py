import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from losscli.build import plan as plan_module
from losscli.build.cache import (
    Cache,
    build_key,
    configuration_key,
    copy_sources,
    portable_key,
    user_cache,
)
from losscli.errors import UnfitError
from losscli.files.directories import UNUSED_SECONDS
from tests.standin import ALPHA, ALPHA_CUDA, BETA, BINDING, CUDA_RUNTIME, GCC_VERSION


@pytest.mark.parametrize(
    ("target", "changed"),
    [
        (ALPHA, {"compiler": GCC_VERSION + "1"}),
        (BINDING, {"torch": "2.14.0"}),
        (BINDING, {"abi": False}),
        (ALPHA_CUDA, {"compiler": "release 13.1"}),
        (ALPHA_CUDA, {"gencode": ("-gencode=arch=sm_100",)}),
    ],
)
def test_configuration_key_covers_each_ingredient(workshop, target, changed):
    before, after = workshop.plan(target), workshop.plan(target, **changed)
    assert configuration_key(after) != configuration_key(before)
    assert build_key(after) != build_key(before)


def test_portable_key_covers_everything_but_the_compiler(workshop, monkeypatch):
    before = portable_key(workshop.plan())
    assert portable_key(workshop.plan(compiler=GCC_VERSION + "1")) == before
    assert portable_key(replace(workshop.plan(), tool=None)) == before
    assert portable_key(workshop.plan(BETA)) != before
    monkeypatch.setattr(plan_module, "instruction_set", lambda: "another machine's")
    assert portable_key(workshop.plan()) != before


def test_kernels_do_not_depend_on_pytorch(workshop):
    for target in (ALPHA, ALPHA_CUDA, CUDA_RUNTIME):
        assert build_key(workshop.plan(target, torch="2.14.0")) == build_key(workshop.plan(target))


def test_a_key_covers_flags_from_the_environment_and_the_cpu(workshop, monkeypatch):
    monkeypatch.delenv("NVCC_APPEND_FLAGS", raising=False)
    keys = [build_key(workshop.plan(ALPHA_CUDA)), build_key(workshop.plan())]
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-lineinfo")
    monkeypatch.setattr(plan_module, "instruction_set", lambda: "another machine's")
    assert build_key(workshop.plan(ALPHA_CUDA)) != keys[0]
    assert build_key(workshop.plan()) != keys[1]


def test_key_covers_sources_and_their_names_but_configuration_covers_none(workshop):
    before = workshop.plan()
    assert build_key(workshop.plan()) == build_key(before)
    for name in ("core/operand.h", "elementwise/cpu/engine.h", "reduce/new.h"):
        workshop.write(name, "edited")
        after = workshop.plan()
        assert build_key(after) != build_key(before), name
        assert configuration_key(after) == configuration_key(before), name
        before = after
    folder = workshop.csrc / "elementwise" / "cpu"
    (folder / "engine.h").rename(folder / "motor.h")
    assert build_key(workshop.plan()) != build_key(before)


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("losses/elementwise/beta.h", {"beta_cpu"}),
        ("torch/ops.cpp", {"torch"}),
        ("elementwise/cuda/launch.cu", {"alpha_cuda"}),
        ("core/cuda/runtime.cu", {"runtime_cuda"}),
        ("reduce/cuda/sums.cuh", {"alpha_cuda"}),
        ("elementwise/kernels.h", {"torch", "alpha_cpu", "beta_cpu", "alpha_cuda"}),
    ],
)
def test_edit_changes_the_keys_of_libraries_that_may_include_it(workshop, edited, changed):
    def keys():
        targets = (BINDING, ALPHA, BETA, ALPHA_CUDA, CUDA_RUNTIME)
        return {(target.name, build_key(workshop.plan(target))) for target in targets}

    before = keys()
    workshop.write(edited, "edited")
    assert {name for name, _ in keys() - before} == changed


def test_copied_sources_keep_their_times_until_their_content_changes(tmp_path):
    copy_sources({"a.h": b"1", "b.h": b"1", "sub/c.h": b"1"}, tmp_path)
    for path in tmp_path.rglob("*.h"):
        os.utime(path, (1000, 1000))
    copy_sources({"a.h": b"1", "b.h": b"2"}, tmp_path)
    assert (tmp_path / "a.h").stat().st_mtime == 1000
    assert (tmp_path / "b.h").stat().st_mtime > 1000
    assert not (tmp_path / "sub/c.h").exists()


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"LOSSCLI_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/losscli"),
        ({"XDG_CACHE_HOME": "relative"}, "{home}/.cache/losscli"),
        ({}, "{home}/.cache/losscli"),
    ],
)
def test_cache_directory_follows_the_environment(environ, root, tmp_path, monkeypatch):
    for name in ("LOSSCLI_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(tmp_path), **environ}.items():
        monkeypatch.setenv(name, value)
    assert user_cache() == Cache(Path(root.replace("{home}", str(tmp_path))))


def test_folders_unused_for_a_month_are_removed(workshop):
    workshop.ensure()
    (old,) = workshop.published()
    workshop.write("losses/elementwise/alpha.h", "edited")
    workshop.ensure()
    last_use = 1_000_000.0
    os.utime(old, (last_use, last_use))
    workshop.cache.drop_unused(last_use + UNUSED_SECONDS - 1)
    assert old in workshop.published()
    workshop.cache.drop_unused(last_use + UNUSED_SECONDS + 1)
    assert workshop.published() == [workshop.cache.folder(workshop.plan())]


def test_foreign_files_in_the_cache_are_never_removed(workshop):
    root = workshop.cache.root
    names = ("cuda-12.0", "cpu-notes", "new-work", "work/thesis", "photos-0123456789abcdef")
    others = [root / name for name in names]
    for folder in others:
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    workshop.cache.drop_unused(10 * UNUSED_SECONDS)
    assert all(folder.is_dir() for folder in others)


def test_use_of_a_library_updates_its_time_but_does_not_set_it_back(workshop):
    workshop.ensure()
    folder = workshop.cache.folder(workshop.plan())
    os.utime(folder, (1000, 1000))
    workshop.ensure()
    assert folder.stat().st_mtime > 1000
    ahead = time.time() + UNUSED_SECONDS
    os.utime(folder, (ahead, ahead))
    workshop.ensure()
    assert folder.stat().st_mtime == pytest.approx(ahead)
    workshop.cache.drop_unused(time.time())
    assert folder in workshop.published()


def test_new_cache_is_writable_by_its_owner_only(workshop):
    before = os.umask(0o002)
    try:
        (outcome,) = workshop.ensure()
    finally:
        os.umask(before)
    assert outcome.path
    for path in (workshop.cache.root, outcome.path.parent, *outcome.path.parent.iterdir()):
        assert not path.stat().st_mode & 0o022, path
    assert workshop.cache.work.stat().st_mode & 0o777 == 0o700
    assert workshop.ensure()[0].status == "cached"


def test_cache_that_other_users_can_write_is_refused(workshop, monkeypatch):
    monkeypatch.setenv("CXX", str(workshop.root / "g++"))
    (outcome,) = workshop.build()
    outcome.path.chmod(0o666)
    with pytest.raises(UnfitError, match=r"alpha_cpu\.so \(owner \d+, mode 666\) can be written"):
        workshop.build()
    workshop.cache.root.chmod(0o775)
    with pytest.raises(UnfitError, match=r"written by other users.*`chmod go-w .*/cache`.*LOSSCLI"):
        workshop.build()


def test_a_cache_of_another_user_is_refused_but_not_that_of_root(workshop, monkeypatch):
    workshop.ensure()
    owner = workshop.cache.root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        workshop.cache.require_private()
        os.chown(workshop.cache.root, 4242, -1)
    with pytest.raises(UnfitError, match=r"belongs to user \d+ \(mode 755\), .*LOSSCLI_CACHE_DIR"):
        workshop.cache.require_private()


def test_full_disk_is_reported_as_full(tmp_path):
    told = r"no space is left under .*LOSSCLI_CACHE_DIR"
    for number in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(UnfitError, match=told), Cache(tmp_path).writing():
            raise OSError(number, os.strerror(number))


def test_cache_that_cannot_be_written_names_the_variable(workshop):
    workshop.cache.require_writable()
    assert not workshop.cache.root.exists()  # a look leaves nothing
    (workshop.root / "file").touch()
    cache = Cache(workshop.root / "file" / "cache")
    for write in (cache.open_lock, cache.require_writable):
        message = r"cannot write the cache .*/file/cache: Not a directory.* in LOSSCLI_CACHE_DIR"
        with pytest.raises(UnfitError, match=message):
            write()
