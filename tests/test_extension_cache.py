"""What a key covers, where libraries lie, and when they go."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from standin import GCC_VERSION, Standin

from losscli.errors import UnfitError
from losscli.extension import plan as plan_module
from losscli.extension.cache import (
    UNUSED_SECONDS,
    Cache,
    build_key,
    configuration_key,
    copy_sources,
    user_cache,
)
from losscli.extension.plan import Plan


@pytest.fixture
def workshop(tmp_path: Path) -> Standin:
    return Standin(tmp_path)


def test_a_key_stays_while_nothing_changes(workshop: Standin) -> None:
    assert build_key(workshop.cpu_plan()) == build_key(workshop.cpu_plan())


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(lambda w: w.cpu_plan(compiler=GCC_VERSION + "1"), id="compiler version"),
        pytest.param(lambda w: w.cpu_plan(torch="2.14.0"), id="torch version"),
        pytest.param(lambda w: w.cpu_plan(abi=False), id="flags"),
        pytest.param(lambda w: replace(w.cpu_plan(), ingredients={"cpu": "other"}), id="cpu model"),
        pytest.param(lambda w: w.cuda_plan(), id="target"),
    ],
)
def test_a_configuration_covers(workshop: Standin, changed: Callable[[Standin], Plan]) -> None:
    plan = workshop.cpu_plan()
    assert configuration_key(changed(workshop)) != configuration_key(plan)
    assert build_key(changed(workshop)) != build_key(plan)


def test_a_cuda_key_covers_toolkit_and_architectures(workshop: Standin) -> None:
    plans = (
        workshop.cuda_plan(),
        workshop.cuda_plan(nvcc="release 13.1"),
        workshop.cuda_plan(gencode=("-gencode=arch=sm_100",)),
    )
    assert len({build_key(plan) for plan in plans}) == 3


def test_a_key_covers_flags_from_the_environment(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NVCC_APPEND_FLAGS", raising=False)
    before = build_key(workshop.cuda_plan())
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-lineinfo")
    assert build_key(workshop.cuda_plan()) != before


@pytest.mark.parametrize("name", ["losses.h", "cpu/engine.h", "binding/ops.cpp", "cpu/new.h"])
def test_a_key_covers_every_source_but_a_configuration_none(workshop: Standin, name: str) -> None:
    before = workshop.cpu_plan()
    workshop.write(name, "#define LOSSCLI_FOR_EACH_LOSS(X) X(alpha) X(beta) // edited")
    after = workshop.cpu_plan()
    assert build_key(after) != build_key(before)
    assert configuration_key(after) == configuration_key(before)


def test_a_key_covers_the_names_of_sources(workshop: Standin) -> None:
    before = build_key(workshop.cpu_plan())
    (workshop.csrc / "cpu" / "engine.h").rename(workshop.csrc / "cpu" / "motor.h")
    assert build_key(workshop.cpu_plan()) != before


def test_an_edit_for_the_gpu_leaves_the_cpus_key(workshop: Standin) -> None:
    before = build_key(workshop.cpu_plan())
    workshop.write("cuda/engine.cu", "edited")
    assert build_key(workshop.cpu_plan()) == before


def test_the_cpu_of_this_machine_is_an_ingredient(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = build_key(workshop.cpu_plan())
    monkeypatch.setattr(plan_module, "instruction_set", lambda: "another machine's")
    assert build_key(workshop.cpu_plan()) != before


def test_copied_sources_keep_their_times_until_their_content_changes(tmp_path: Path) -> None:
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
        ({}, "{home}/.cache/losscli"),
    ],
)
def test_where_the_cache_is(
    environ: dict[str, str], root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache(environ) == Cache(Path(root.replace("{home}", str(tmp_path))))


def test_folders_unused_for_a_month_go_and_others_stay(workshop: Standin) -> None:
    workshop.ensure(workshop.cpu_plan())
    (old,) = workshop.published()
    workshop.write("losses.h", "X(alpha)")
    workshop.ensure(workshop.cpu_plan())
    last_use = 1_000_000.0
    os.utime(old, (last_use, last_use))
    workshop.cache.drop_unused(last_use + UNUSED_SECONDS - 1)
    assert old in workshop.published()
    workshop.cache.drop_unused(last_use + UNUSED_SECONDS + 1)
    assert workshop.published() == [workshop.cache.folder(workshop.cpu_plan())]


def test_what_is_not_the_caches_own_never_goes(workshop: Standin) -> None:
    root = workshop.cache.root
    others = [root / name for name in ("cuda-12.0", "cpu-notes", "new-work", "work/thesis")]
    for folder in others:
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    workshop.cache.drop_unused(10 * UNUSED_SECONDS)
    assert all(folder.is_dir() for folder in others)


def test_use_is_noted(workshop: Standin) -> None:
    plan = workshop.cpu_plan()
    workshop.ensure(plan)
    folder = workshop.cache.folder(plan)
    os.utime(folder, (1000, 1000))
    workshop.ensure(plan)
    assert folder.stat().st_mtime > 1000


def test_a_cache_that_cannot_be_made_names_the_variable(tmp_path: Path, workshop: Standin) -> None:
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file" / "cache")
    with pytest.raises(
        UnfitError,
        match=r"cannot write the cache .*/file/cache: Not a directory.*"
        r" in LOSSCLI_CACHE_DIR",
    ):
        cache.open_lock()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_to_be_full(tmp_path: Path, number: int) -> None:
    with (
        pytest.raises(UnfitError, match=r"no room is left under .*LOSSCLI_CACHE_DIR"),
        Cache(tmp_path).writing(),
    ):
        raise OSError(number, os.strerror(number))
