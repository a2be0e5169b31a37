import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from losscli.build import builder as build_module
from losscli.build.ninja import job_count
from losscli.cases.case import ITEM_BYTES
from losscli.errors import BuildError, UnfitError, UsageError
from losscli.processes.lock import locked
from tests.parameters import naming
from tests.standin import ALPHA, ALPHA_CUDA, BETA, BINDING, cut_short, write_program

ALL = ["alpha_cpu/elementwise.cpu.engine.o", "alpha_cpu/liblosscli_alpha_cpu.so"]
CUDA = [
    *(f"alpha_cuda/elementwise.cuda.kernel.{dtype}.o" for dtype in sorted(ITEM_BYTES)),
    "alpha_cuda/elementwise.cuda.launch.o",
    "alpha_cuda/liblosscli_alpha_cuda.so",
]


def test_first_build_compiles_everything_and_the_second_nothing(workshop):
    (outcome,) = workshop.ensure()
    assert workshop.compiled() == ALL
    assert (outcome.target, outcome.status, outcome.fresh) == ("alpha_cpu", "built", True)
    assert outcome.path == workshop.cache.library(workshop.plan())
    assert outcome.path.read_text().startswith("-shared -o alpha_cpu-")
    (note,) = workshop.notes
    assert note.startswith("building for this machine: alpha_cpu; takes about ")
    assert workshop.steps[-1] == "[2/2] linking liblosscli_alpha_cpu.so"
    (outcome,) = workshop.ensure()
    assert (outcome.status, outcome.fresh) == ("cached", False)
    assert (workshop.compiled(), workshop.notes) == ([], [note])
    assert workshop.ensure(force=True)[0].status == "built"
    assert workshop.compiled() == ALL


def test_several_libraries_are_built_in_one_run_and_again_only_if_edited(workshop):
    targets = (BINDING, ALPHA, BETA, ALPHA_CUDA)
    workshop.ensure(workshop.plan(BETA))
    workshop.notes.clear()
    outcomes = workshop.ensure(*map(workshop.plan, targets))
    assert [(each.target, each.status) for each in outcomes] == [
        *(("torch", "built"), ("alpha_cpu", "built")),
        *(("beta_cpu", "cached"), ("alpha_cuda", "built")),
    ]
    (note,) = workshop.notes
    assert note.startswith("building for this machine: torch, alpha_cpu, alpha_cuda; takes about ")
    assert workshop.steps[-1].startswith(f"[{4 + len(CUDA)}/")
    workshop.write("losses/elementwise/beta.h", "edited")
    outcomes = workshop.ensure(*map(workshop.plan, targets))
    assert [each.target for each in outcomes if each.fresh] == ["beta_cpu"]


@pytest.mark.parametrize(
    ("edited", "recompiled"),
    [
        ("elementwise/cuda/launch.cu", CUDA[-2:]),
        ("elementwise/cuda/kernel.dtype.cu", [*CUDA[:-2], CUDA[-1]]),
        ("core/operand.h", CUDA),
    ],
)
def test_an_edit_recompiles_what_includes_it(workshop, edited, recompiled):
    workshop.ensure(workshop.plan(ALPHA_CUDA))
    assert workshop.compiled() == CUDA
    workshop.write(edited, "edited")
    (outcome,) = workshop.ensure(workshop.plan(ALPHA_CUDA))
    assert workshop.compiled() == recompiled
    assert len(workshop.published()) == 2
    for output in CUDA:
        name = output.rpartition("/")[2]
        assert f"/{name}" in outcome.log, "the log holds objects that were up to date, too"


def test_edit_is_compiled_whatever_its_time(workshop, monkeypatch):
    workshop.ensure()
    workshop.compiled()
    # Installing another version leaves such files: they carry the times of its release.
    workshop.write("elementwise/cpu/sums.cpp", "other version")
    os.utime(workshop.csrc / "elementwise/cpu/sums.cpp", (0, 0))
    workshop.ensure()
    assert workshop.compiled() == ALL
    # The clock was set back since the last build.
    workshop.write("elementwise/cpu/engine.cpp", "edited")

    def set_back(write):
        def written(path, *content):
            count = write(path, *content)
            os.utime(path, (1000, 1000))
            return count

        return written

    for name in ("write_text", "write_bytes"):
        monkeypatch.setattr(Path, name, set_back(getattr(Path, name)))
    workshop.ensure()
    assert workshop.compiled() == ALL


def test_library_built_by_another_process_during_a_wait_is_used(workshop, monkeypatch):
    workshop.ensure()
    workshop.compiled()
    folder = workshop.cache.folder(workshop.plan())
    folder.rename(workshop.root / "aside")

    @contextlib.contextmanager
    def locked_after_a_wait(file, notify):
        (workshop.root / "aside").rename(folder)
        yield

    monkeypatch.setattr(build_module, "locked", locked_after_a_wait)
    assert workshop.ensure()[0].status == "cached"
    assert workshop.compiled() == []


def change_one_byte(library):
    content = bytearray(library.read_bytes())
    content[40] ^= 1
    library.write_bytes(content)


def test_damaged_library_is_rebuilt_and_reported(workshop):
    (first,) = workshop.ensure()
    whole, manifest = first.path.read_bytes(), first.path.parent / "manifest.json"
    for reason, damage in (
        (r"50 of \d+ bytes are present", lambda: cut_short(first.path)),
        ("its content has changed since it was built", lambda: change_one_byte(first.path)),
        ("cannot be read: No such file", first.path.unlink),
        ("manifest.json is missing or damaged", manifest.unlink),
        ("manifest.json is missing or damaged", lambda: manifest.write_text("[]")),
    ):
        with naming(reason):
            damage()
            workshop.notes.clear()
            (outcome,) = workshop.ensure()
            assert outcome.status == "built"
            assert re.search(reason, outcome.reason)
            assert "is damaged" in workshop.notes[0]
            assert first.path.read_bytes() == whole
            assert workshop.ensure()[0].status == "cached"


def test_failed_build_reports_step_first_error_and_log(workshop):
    workshop.write("elementwise/cpu/sums.cpp", "csrc/x.h:3:1: error: 'ATen' is all wrong")
    with pytest.raises(BuildError) as caught:
        workshop.ensure()
    log = workshop.cache.work / "build.log"
    first, last = str(caught.value).splitlines()
    assert first == (
        "compiling csrc/elementwise/cpu/engine.cpp for alpha and 1 more file failed: "
        "csrc/x.h:3:1: error: 'ATen' is all wrong"
    )
    assert last == f"  The whole log is {log}"
    assert "error: 'ATen' is all wrong" in log.read_text()
    assert workshop.published() == []


def test_libraries_built_before_a_failure_are_kept(workshop, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "1")
    workshop.write("torch/ops.cpp", "error: wrong")
    plans = [workshop.plan(ALPHA), workshop.plan(BINDING)]
    with pytest.raises(BuildError):
        workshop.ensure(*plans)
    # Whatever ninja took first: nothing is published that was not linked in this run.
    assert workshop.cache.folder(plans[1]) not in workshop.published()


def test_failed_build_publishes_nothing_until_the_source_is_fixed(workshop):
    workshop.ensure()
    workshop.write("elementwise/cpu/sums.cpp", "error: wrong")
    with pytest.raises(BuildError):
        workshop.ensure()
    assert len(workshop.published()) == 1
    workshop.write("elementwise/cpu/sums.cpp", "right")
    assert workshop.ensure()[0].status == "built"


def test_known_build_failure_has_a_hint(workshop):
    workshop.write("torch/ops.cpp", "fatal error: torch/library.h: No such file or directory")
    with pytest.raises(BuildError, match=r"\n  PyTorch's headers .*: install torch 2\.10 or newer"):
        workshop.ensure(workshop.plan(BINDING))


def test_compiler_without_output_is_blamed_not_the_cache(workshop):
    write_program(workshop.root / "g++", "#!/bin/sh\n")
    with pytest.raises(BuildError, match=r"linking .*g\+\+ reported success but made no output"):
        workshop.ensure()
    assert workshop.published() == []


def test_full_disk_is_not_blamed_on_the_compiler(workshop):
    text = "fatal error: error writing x.s: No space left on device"
    workshop.write("elementwise/cpu/sums.cpp", text)
    with pytest.raises(UnfitError, match=r"no space is left under .*LOSSCLI_CACHE_DIR"):
        workshop.ensure()


def test_an_interrupted_build_ends_its_compilers_and_publishes_nothing(workshop, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "8")
    pipe = workshop.root / "pipe"
    os.mkfifo(pipe)
    workshop.write("elementwise/cpu/blocked.cpp", "")
    ends = []

    def interrupt(step):
        ends.append(os.open(pipe, os.O_WRONLY))  # returns once the compiler waits at the other end
        raise KeyboardInterrupt

    builder = replace(workshop.builder(), progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        builder.finish([workshop.plan(), workshop.plan(BINDING)])
    poll = select.poll()
    poll.register(ends[0], 0)
    assert poll.poll(10_000), "nobody reads the pipe any longer"
    os.close(ends[0])
    assert workshop.published() == []
    assert {path.name for path in workshop.cache.root.iterdir()} == {"locks", "work"}
    with workshop.cache.open_lock() as file, locked(file, workshop.notes.append):
        assert len(workshop.notes) == 1, "the lock was free"


BUILDER = """
import sys
from pathlib import Path
from tests.standin import Standin
Standin.__post_init__ = lambda self: None  # the workshop is there
Standin(Path(sys.argv[1])).ensure()
"""
WAITS = """\
#!/bin/sh
if [ "$1" != --version ] && [ -e {root}/pipe ]; then cat {root}/pipe; fi
"""


@pytest.mark.parametrize("group", [False, True], ids=["losscli", "losscli and ninja"])
def test_library_whose_build_was_killed_is_built_by_the_next(workshop, monkeypatch, group):
    """What is left of a build keeps its lock."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    (expected,) = workshop.ensure()
    whole = expected.path.read_bytes()
    shutil.rmtree(workshop.cache.root)
    compiler, pipe = workshop.root / "g++", workshop.root / "pipe"
    waits = WAITS.format(root=workshop.root)
    compiler.write_text(compiler.read_text().replace("#!/bin/sh\n", waits))
    os.mkfifo(pipe)
    with subprocess.Popen([sys.executable, "-c", BUILDER, workshop.root]) as builder:
        end = os.open(pipe, os.O_WRONLY)  # returns once the compiler waits at the other end
        (ninja,) = Path(f"/proc/{builder.pid}/task/{builder.pid}/children").read_text().split()
        builder.kill()
        if group:
            os.kill(int(ninja), signal.SIGKILL)
    pipe.unlink()
    slept = []

    def let_the_compiler_end(seconds):
        if not slept:
            os.close(end)
        slept.append(seconds)
        os.sched_yield()

    notify = workshop.notes.append
    with workshop.cache.open_lock() as file, locked(file, notify, sleep=let_the_compiler_end):
        assert slept, "the lock was free"
    (outcome,) = workshop.ensure()
    assert (outcome.status, outcome.fresh) == ("built", True)
    assert outcome.path == expected.path
    assert outcome.path.read_bytes() == whole
    assert not workshop.cache.damage(workshop.plan())


def test_jobs_are_limited_by_cores_and_memory_unless_a_variable_says_how_many():
    cases = [(16, 1e12, 16), (16, 6.5e9, 4), (2, 1e6, 1)]
    assert [job_count(cores, free, {}) for cores, free, _ in cases] == [n for *_, n in cases]
    assert job_count(2, 1e6, {"MAX_JOBS": "7"}) == 7
    for given in ("0", "-1", "two", "1.5"):
        with pytest.raises(UsageError, match=f"MAX_JOBS should be .* but is '{given}'"):
            job_count(2, 1e12, {"MAX_JOBS": given})
