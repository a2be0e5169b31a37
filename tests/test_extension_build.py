"""Building with stand-in compilers: what is compiled, kept, said and left behind."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from standin import Standin, write_program

from losscli.errors import BuildError, UnfitError, UsageError
from losscli.extension import build as build_module
from losscli.extension import load
from losscli.extension.build import Outcome, build, ensure
from losscli.extension.lock import locked
from losscli.extension.ninja_run import job_count
from losscli.extension.plan import TorchInstall

ALL = ["binding.ops.o", "cpu.instantiate.alpha.o", "cpu.instantiate.beta.o", "liblosscli.so"]


@pytest.fixture
def workshop(tmp_path: Path) -> Standin:
    return Standin(tmp_path)


def test_the_first_build_compiles_everything_and_says_so_in_one_line(workshop: Standin) -> None:
    outcome = workshop.ensure(workshop.cpu_plan())
    assert sorted(workshop.compiled()) == ALL
    assert outcome.status == "built"
    assert outcome.path == workshop.cache.library(workshop.cpu_plan())
    assert outcome.path.read_text().startswith("-shared -o liblosscli.so binding.ops.o")
    assert outcome.seconds is not None
    assert workshop.notes == ["building the CPU kernels for this machine"]
    assert workshop.steps[-1] == "[4/4] linking liblosscli.so"


def test_the_second_build_does_nothing_and_says_nothing(workshop: Standin) -> None:
    workshop.ensure(workshop.cpu_plan())
    workshop.compiled(), workshop.notes.clear()
    outcome = workshop.ensure(workshop.cpu_plan())
    assert outcome.status == "cached"
    assert outcome.seconds is None
    assert workshop.compiled() == []
    assert workshop.notes == []


def test_force_builds_again_from_nothing(workshop: Standin) -> None:
    workshop.ensure(workshop.cpu_plan())
    workshop.compiled()
    assert workshop.ensure(workshop.cpu_plan(), force=True).status == "built"
    assert sorted(workshop.compiled()) == ALL


@pytest.mark.parametrize(
    ("edited", "recompiled"),
    [
        ("binding/ops.cpp", ["binding.ops.o", "liblosscli.so"]),
        ("cpu/engine.h", ALL[1:]),
    ],
)
def test_an_edit_recompiles_what_includes_it(
    workshop: Standin, edited: str, recompiled: list[str]
) -> None:
    workshop.ensure(workshop.cpu_plan())
    workshop.compiled()
    workshop.write(edited, "edited")
    outcome = workshop.ensure(workshop.cpu_plan())
    assert sorted(workshop.compiled()) == recompiled
    assert len(workshop.published()) == 2
    for output in ALL:
        assert f"-o {output}" in outcome.log, "the log holds objects that were up to date, too"


def test_a_source_with_an_older_time_but_other_content_is_compiled(workshop: Standin) -> None:
    """As after installing another version, whose files carry the times of their release."""
    workshop.ensure(workshop.cpu_plan())
    workshop.compiled()
    workshop.write("binding/ops.cpp", "other version")
    os.utime(workshop.csrc / "binding/ops.cpp", (0, 0))
    workshop.ensure(workshop.cpu_plan())
    assert workshop.compiled() == ["binding.ops.o", "liblosscli.so"]


def test_what_another_process_built_while_this_one_waited_is_used(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = workshop.cache.library(workshop.cpu_plan())

    @contextlib.contextmanager
    def locked_after_a_wait(file: IO[str], notify: Callable[[str], None]) -> Iterator[None]:
        library.parent.mkdir(parents=True)
        library.touch()
        yield

    monkeypatch.setattr(build_module, "locked", locked_after_a_wait)
    assert workshop.ensure(workshop.cpu_plan()).status == "cached"
    assert workshop.compiled() == []


def test_a_failed_build_tells_step_first_error_and_log(workshop: Standin) -> None:
    workshop.write("cpu/instantiate.cpp", "csrc/cpu/engine.h:3:1: error: 'ATen' is all wrong")
    with pytest.raises(BuildError) as caught:
        workshop.ensure(workshop.cpu_plan())
    log = workshop.cache.work_folder(workshop.cpu_plan()) / "build.log"
    first, last = str(caught.value).splitlines()
    assert first.startswith("compiling csrc/cpu/instantiate.cpp for ")
    assert first.endswith(" failed: csrc/cpu/engine.h:3:1: error: 'ATen' is all wrong")
    assert last == f"  The whole log is {log}"
    assert "error: 'ATen' is all wrong" in log.read_text()
    assert workshop.published() == []


def test_a_known_failure_comes_with_what_to_do(workshop: Standin) -> None:
    workshop.write("binding/ops.cpp", "fatal error: torch/library.h: No such file or directory")
    with pytest.raises(BuildError, match=r"\n  PyTorch's headers .*: install torch 2\.10 or newer"):
        workshop.ensure(workshop.cpu_plan())


def test_a_build_goes_on_from_where_it_failed(workshop: Standin) -> None:
    workshop.write("binding/ops.cpp", "error: once")
    with pytest.raises(BuildError):
        workshop.ensure(workshop.cpu_plan())
    workshop.write("binding/ops.cpp", "right")
    assert workshop.ensure(workshop.cpu_plan()).status == "built"


def test_a_compiler_that_makes_nothing_is_to_blame_not_the_cache(workshop: Standin) -> None:
    write_program(workshop.root / "g++", "#!/bin/sh\n")
    with pytest.raises(BuildError, match=r"linking .*g\+\+ reported success but made no output"):
        workshop.ensure(workshop.cpu_plan())
    assert workshop.published() == []


def test_a_full_disk_is_no_fault_of_the_compiler(workshop: Standin) -> None:
    workshop.write("binding/ops.cpp", "fatal error: error writing x.s: No space left on device")
    with pytest.raises(UnfitError, match=r"no room is left under .*LOSSCLI_CACHE_DIR"):
        workshop.ensure(workshop.cpu_plan())


def test_an_interrupted_build_ends_its_compilers_and_publishes_nothing(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "8")
    pipe = workshop.root / "pipe"
    os.mkfifo(pipe)
    workshop.write("cpu/blocked.cpp", "")
    ends = []

    def interrupt(step: str) -> None:
        ends.append(os.open(pipe, os.O_WRONLY))  # returns once the compiler waits at the other end
        raise KeyboardInterrupt

    plan = workshop.cpu_plan()
    with pytest.raises(KeyboardInterrupt):
        ensure(plan, workshop.cache, notify=workshop.notes.append, progress=interrupt)
    poll = select.poll()
    poll.register(ends[0], 0)
    assert poll.poll(10_000), "nobody reads the pipe any longer"
    os.close(ends[0])
    assert workshop.published() == []
    assert {path.name for path in workshop.cache.root.iterdir()} == {"lock", "work"}
    with workshop.cache.open_lock() as file, locked(file, workshop.notes.append):
        assert len(workshop.notes) == 1, "the lock was free"


BUILDER = """
import sys
from pathlib import Path
from standin import Standin, write_program
workshop = Standin(Path(sys.argv[1]))
workshop.write("cpu/blocked.cpp", "")
workshop.ensure(workshop.cpu_plan())
"""


def test_the_compilers_of_a_build_that_was_killed_keep_its_lock(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    pipe = workshop.root / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, "-c", BUILDER, workshop.root]) as builder:
        end = os.open(pipe, os.O_WRONLY)  # returns once the compiler waits at the other end
        builder.kill()

    waits = []

    def let_the_compiler_end(seconds: float) -> None:
        if not waits:
            os.close(end)
        waits.append(seconds)
        os.sched_yield()

    with (
        workshop.cache.open_lock() as file,
        locked(file, workshop.notes.append, sleep=let_the_compiler_end),
    ):
        assert waits, "the lock was free"


@pytest.mark.parametrize(
    ("cores", "free", "jobs"),
    [
        pytest.param(16, 1e12, 16, id="cores"),
        pytest.param(16, 6.5e9, 4, id="memory"),
        pytest.param(2, 1e6, 1, id="never none"),
    ],
)
def test_jobs_are_limited_by_cores_and_memory(cores: int, free: float, jobs: int) -> None:
    assert job_count(cores, free, {}) == jobs


def test_max_jobs_wins() -> None:
    assert job_count(2, 1e6, {"MAX_JOBS": "7"}) == 7


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_a_max_jobs_that_is_no_number_is_an_error(given: str) -> None:
    with pytest.raises(UsageError, match=f"MAX_JOBS should be .* but is '{given}'"):
        job_count(2, 1e12, {"MAX_JOBS": given})


class TestTargets:
    """Which libraries a device asks for."""

    @pytest.fixture(autouse=True)
    def _machine(self, workshop: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", str(workshop.root / "g++"))
        monkeypatch.setenv("CUDACXX", str(workshop.root / "nvcc"))
        monkeypatch.setattr(build_module, "present_capabilities", list)
        self.torch_built_with(workshop, monkeypatch, "13.0")

    def torch_built_with(
        self, workshop: Standin, monkeypatch: pytest.MonkeyPatch, cuda: str | None
    ) -> None:
        torch = TorchInstall("2.13.0", workshop.root, cuda, True)
        monkeypatch.setattr(build_module, "installed_torch", lambda: torch)

    def build(self, workshop: Standin, device: str) -> list[Outcome]:
        return build(
            device,
            notify=workshop.notes.append,
            progress=workshop.steps.append,
            cache=workshop.cache,
            csrc=workshop.csrc,
        )

    def test_auto_is_both(self, workshop: Standin) -> None:
        outcomes = self.build(workshop, "auto")
        assert [(o.target, o.status) for o in outcomes] == [("cpu", "built"), ("cuda", "built")]
        again = self.build(workshop, "cuda")
        assert [(o.target, o.status) for o in again] == [("cpu", "cached"), ("cuda", "cached")]

    def test_cpu_is_that_alone(self, workshop: Standin) -> None:
        assert [o.target for o in self.build(workshop, "cpu")] == ["cpu"]

    def test_auto_skips_cuda_without_nvcc_and_says_why(
        self, workshop: Standin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDACXX", "nowhere")
        cpu, cuda = self.build(workshop, "auto")
        assert cpu.status == "built"
        assert (cuda.status, cuda.path) == ("skipped", None)
        assert "no program 'nowhere'" in cuda.reason

    def test_cuda_without_nvcc_fails_before_anything_is_built(
        self, workshop: Standin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUDACXX", "nowhere")
        with pytest.raises(UnfitError, match="no program 'nowhere'"):
            self.build(workshop, "cuda")
        assert workshop.compiled() == []

    def test_kernels_that_this_pytorch_cannot_run_are_compiled_as_a_check(
        self, workshop: Standin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.torch_built_with(workshop, monkeypatch, None)
        for _ in ("built", "cached"):
            _, cuda = self.build(workshop, "auto")
            assert cuda.status == "compiled only"
            assert cuda.reason == "torch 2.13.0 is built without CUDA"

    def test_kernels_are_compiled_for_the_gpus_here(
        self, workshop: Standin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(build_module, "present_capabilities", lambda: [(10, 0)])
        _, cuda = self.build(workshop, "auto")
        assert "-gencode=arch=compute_100,code=sm_100" in cuda.log


def test_threads_that_load_at_once_load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(load, "_load", lambda: calls.append(1))
    monkeypatch.setattr(load, "loaded", False)
    threads = [threading.Thread(target=load.load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert load.loaded


def test_a_load_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise BuildError("no")

    monkeypatch.setattr(load, "_load", fail)
    monkeypatch.setattr(load, "loaded", False)
    with pytest.raises(BuildError):
        load.load()
    assert not load.loaded
