"""`losscli doctor` finds what is wrong with made-up machines."""

import errno
import os
import resource
import shutil
import sys
import tempfile
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from losscli.build.cache import Cache
from losscli.build.plan import installed_torch
from losscli.doctor import building, questions
from losscli.doctor.findings import OK, PROBLEM, WARNING, Probe, ok
from losscli.doctor.machine import Machine, Torch
from losscli.doctor.probes import PROBES
from losscli.doctor.questions import NoAnswerError
from losscli.machine import allocator
from tests.doctoring import UUID, make_up
from tests.parameters import SLOW, naming
from tests.standin import GCC_VERSION, NVCC_VERSION


@pytest.fixture
def made(tmp_path, monkeypatch):
    return make_up(tmp_path, monkeypatch)


def test_h200_with_everything_has_no_complaint(made):
    report = made.examine()
    assert made.complaints() == {}
    assert (report.device, report.usable) == ("cuda:0", True)
    assert {each.name: each.found for each in report.findings if each.area == "GPU"} == {
        "driver": "580.82.07, CUDA 13.0 at most",
        "GPUs": "cuda:0 NVIDIA H200 (150.0 GiB)",
        "partitions": "MIG is off",
        "clocks": "345 of 1980 MHz, 31 °C, 76 W, not throttled",
        "sharing": "several processes may use it",
        "other programs": "none",
    }
    assert not (made.root / "cache").exists()


def test_machine_without_gpu_is_fine_for_the_cpu(made):
    made.without_gpu()
    made.remove("nvcc")
    report = made.examine()
    assert report.device == "cpu"
    assert made.complaints() == {}
    found = {finding.name: finding for finding in report.findings}
    assert found["GPUs"].found == "none; runs use the CPU"
    assert "cpu needs none; looked in the PATH" in found["nvcc"].found
    assert not {"driver", "clocks", "host compiler"} & set(found)


NO_GPU = "device cuda needs a GPU, but torch finds no GPU; use --device cpu"
NO_CUDA = "device cuda needs a GPU, but torch 2.13.0+cpu is built without CUDA; use --device cpu"
NO_SECOND = "there is no cuda:1; this machine has cuda:0"
NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
OF_CPU = {"version": "2.13.0+cpu", "cuda": None, "capabilities": [], "uuid": ""}
OLD = "The NVIDIA driver on your system is too old (found version 12040)."


def told(question, **answers):
    """Return what changes the answers of torch, or the driver."""
    return lambda made, patch: made.answers[question].update(answers)


def unanswered(question, error):
    return lambda made, patch: made.answers.update({question: NoAnswerError(error)})


def too_old(made, patch):
    made.answers["driver"]["cuda"] = [12, 4]
    made.answers["torch"] |= {"device": None, "unfit": NO_GPU, "warnings": [OLD]}


def hanging_driver_on_a_cpu(made, patch):
    made.answers["driver"] = NoAnswerError("no answer within 120 s")
    made.answers["torch"]["device"] = "cpu"


def hidden(made, patch):
    made.answers["driver"]["gpus"] = []
    made.answers["torch"] |= {"device": None, "unfit": NO_GPU}
    patch.setenv("CUDA_VISIBLE_DEVICES", "")


def says(**facts):
    """Return what changes what nvidia-smi says."""
    return lambda made, patch: made.gpu.update({k.replace("__", "."): v for k, v in facts.items()})


def program(name, *given):
    return lambda made, patch: made.program(name, *given)


def variable(name, value):
    return lambda made, patch: patch.setenv(name, value)


def written(name, text):
    return lambda made, patch: made.write(name, text)


def no_compiler_at_all(made, patch):
    made.without_gpu()
    made.remove("g++")
    patch.setenv("PATH", str(made.root / "bin"))


def cache_below_a_file(made, patch):
    made.write("file", "")
    patch.setenv("LOSSCLI_CACHE_DIR", str(made.root / "file" / "cache"))


def limits_of_the_shell(made, patch):
    given, real = {resource.RLIMIT_AS: 2**33, resource.RLIMIT_NOFILE: 256}, resource.getrlimit
    patch.setattr(resource, "getrlimit", lambda each: (given.get(each, real(each)[0]), -1))


def limit_of_a_control_group(made, patch):
    made.write("sys/fs/cgroup/memory.max", f"{8 * 2**30}")
    made.write("sys/fs/cgroup/memory.current", f"{2**30}")
    made.write("sys/fs/cgroup/memory.stat", "inactive_file 0\n")


def attribute(name, value):
    return lambda made, patch: setattr(made, name, value)


def patched(target, name, value):
    return lambda made, patch: patch.setattr(target, name, value)


READ_ONLY = Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS)))
MEMORY = "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\n"
NOEXEC, FULL = SimpleNamespace(f_flag=os.ST_NOEXEC), SimpleNamespace(free=2**30)
NO_GLIBC = "the C library is not glibc"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
CACHE, CPLUSPLUS, DEVICE = "build: cache", "build: C++ compiler", "software: device"
DRIVER, NVCC, TORCH = "GPU: driver", "build: nvcc", "software: torch"
PROGRAMS, SHARING, JOBS = "GPU: other programs", "GPU: sharing", "build: jobs"


LOOKS = {
    "torch without CUDA": (told("torch", **OF_CPU, device="cpu"), DEVICE),
    "asked for": (told("torch", **OF_CPU, device=None, unfit=NO_CUDA), f"{DEVICE}, cuda"),
    "GPU that does not compute": (told("torch", trouble="AcceleratorError: CUDA error"), DEVICE),
    "old driver": (too_old, f"{DRIVER}, cuda"),
    "device of an old driver": (too_old, f"{DEVICE}, cuda"),
    "hidden GPU": (hidden, f"{DEVICE}, cuda"),
    "hidden from the driver": (hidden, "GPU: GPUs, cuda"),
    "hanging driver": (unanswered("driver", "no answer within 120 s"), f"{DRIVER}, cuda"),
    "hanging driver of no use": (hanging_driver_on_a_cpu, f"{DRIVER}, cpu"),
    "second GPU": (told("torch", device=None, unfit=NO_SECOND), f"{DEVICE}, cuda:1"),
    "no second GPU": (told("torch", device=None, unfit=NO_SECOND), "GPU: GPUs, cuda:1"),
    "no GPU": (told("torch", device=None, unfit=NO_GPU), f"{DEVICE}, cuda"),
    "library of torch": (unanswered("torch", "OSError: libcudart.so.13: none"), f"{TORCH}, cpu"),
    "no torch": (unanswered("torch", NO_TORCH), f"{TORCH}, cpu"),
    "device of no torch": (unanswered("torch", NO_TORCH), f"{DEVICE}, cpu"),
    "crash of torch": (unanswered("torch", "the process was ended by SIGSEGV"), f"{TORCH}, cpu"),
    "no nvcc": (lambda made, patch: made.remove("nvcc"), NVCC),
    "no nvcc for a GPU": (lambda made, patch: made.remove("nvcc"), f"{NVCC}, cuda"),
    "old torch": (told("torch", version="2.4.1+cu121"), TORCH),
    "another compiler": (program("g++", "not gcc"), CPLUSPLUS),
    "another compiler for the CPU": (program("g++", "not gcc"), f"{CPLUSPLUS}, cpu"),
    "no compiler": (no_compiler_at_all, CPLUSPLUS),
    "nvcc of another CUDA": (program("nvcc", NVCC_VERSION.replace("13.0", "12.8")), NVCC),
    "GPU too old for nvcc": (told("torch", capabilities=[[6, 1]]), NVCC),
    "wrong jobs": (variable("MAX_JOBS", "many"), JOBS),
    "jobs": (variable("MAX_JOBS", "3"), JOBS),
    "no ninja": (lambda made, patch: patch.setitem(sys.modules, "ninja", None), "build: ninja"),
    "cache below a file": (cache_below_a_file, CACHE),
    "read-only cache": (patched(tempfile, "TemporaryFile", READ_ONLY), CACHE),
    "noexec": (patched(os, "statvfs", lambda path: NOEXEC), CACHE),
    "full disk": (patched(shutil, "disk_usage", lambda path: FULL), "build: space"),
    "little memory": (written("proc/meminfo", MEMORY), "host: memory"),
    "control group": (limit_of_a_control_group, "host: memory"),
    "quota": (written("sys/fs/cgroup/cpu.max", "150000 100000"), "host: CPU"),
    "governor": (written(GOVERNOR, "powersave\n"), "host: governor"),
    "limits of the shell": (limits_of_the_shell, "host: limits"),
    "nearly idle": (attribute("busy", 0.05), "host: other programs"),
    "busy": (attribute("busy", 0.6), "host: other programs"),
    "busy or not": (attribute("busy", None), "host: other programs"),
    "other allocator": (patched(allocator, "unsettable", lambda: NO_GLIBC), "host: allocator"),
    "little isolation": (told("isolation", reached=["session", "memory"]), "host: isolation"),
    "MIG": (says(mig__mode__current="Enabled"), "GPU: partitions"),
    "one process at a time": (says(compute_mode="Exclusive_Process"), SHARING),
    "closed to computing": (says(compute_mode="Prohibited"), SHARING),
    "used memory": (says(memory__used="20480"), PROGRAMS),
    "in use": (says(utilization__gpu="87"), PROGRAMS),
    "used by": (attribute("processes", f"GPU-{UUID}, 4711, python a.py, 20480"), PROGRAMS),
    "another is used": (attribute("processes", "GPU-0-9, 4711, python a.py, 20480"), PROGRAMS),
    "throttled": (told("conditions", throttle_reasons=["too hot"]), "GPU: clocks"),
    "no NVML": (told("conditions", unknown="nvidia-ml-py is not installed"), "GPU: clocks"),
}


def test_what_is_wrong_is_found_with_its_remedy(tmp_path, golden):
    lines = []
    for case, (change, what) in LOOKS.items():
        root = tmp_path / case.replace(" ", "-")
        name, _, asked = what.partition(", ")
        with naming(case), pytest.MonkeyPatch.context() as patch:
            made = make_up(root, patch)
            change(made, patch)
            found = made.look(name, asked or "auto")
            lines += [f"{case}: {found.state}, {found.found}", f"    -> {found.advice}"]
            lines[-2:] = [line.replace(str(root), "ROOT").rstrip() for line in lines[-2:]]
    golden("doctor.txt", "\n".join(lines) + "\n")


def test_cache_of_another_user_is_a_problem(made, monkeypatch):
    (made.root / "cache").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    if (made.root / "cache").stat().st_uid == 0:
        os.chown(made.root / "cache", 4243, -1)
    found = made.look(CACHE)
    assert found.state == PROBLEM
    assert "belongs to user" in found.found


ERRORS = [
    ("g++", "*", "g++: fatal error: cannot execute 'cc1plus': no such file", "reinstall g++"),
    ("g++", "*mse*", "fatal error: cmath: No such file or directory", "reinstall g++"),
    ("g++", "*torch/include*", "fatal error: c10/a.h: No such file", "install torch 2.10 or newer"),
    ("g++", "*-lc10*", "/usr/bin/ld: cannot find -lc10", "reinstall torch"),
    ("nvcc", "*", "error: -- unsupported GNU version! gcc versions later", "CUDAHOSTCXX"),
]


@pytest.mark.parametrize(
    ("name", "when", "error", "advice"),
    [ERRORS[3], *(pytest.param(*e, marks=SLOW) for e in ERRORS)],
)
def test_compiler_that_fails_in_a_build_is_a_problem(made, name, when, error, advice):
    made.compiles = True
    version, probe = {
        "g++": (GCC_VERSION, CPLUSPLUS),
        "nvcc": (NVCC_VERSION, "build: host compiler"),
    }[name]
    made.program(name, version, f'case "$*" in {when}) echo "{error}" >&2; exit 1 ;; esac')
    found = made.look(probe)
    assert found.state == PROBLEM
    assert error in found.found
    assert advice in found.advice


def test_compiler_that_makes_nothing_is_a_problem(made):
    made.compiles = True
    made.program("nvcc", NVCC_VERSION, "exit 0")
    assert "nvcc fails with" in made.look("build: host compiler").found
    assert "makes no output" in made.look("build: host compiler").found


@SLOW
def test_real_compilers_have_no_problem_with_an_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    machine = Machine("cpu")
    machine.torch = Torch(installed_torch(), "cpu", "", "", [], "", [])
    assert building.compiler(machine).state == OK
    if shutil.which("nvcc"):
        machine.device = "cuda:0"
        answer = building.host_compiler(machine)
        assert answer
        assert answer.state == OK


def test_missing_gpu_is_a_problem_where_one_is_asked_for(made):
    made.without_gpu()
    made.answers["torch"] |= {"device": None, "unfit": NO_GPU}
    found = made.complaints("cuda")
    problems = {name for name, state in found.items() if state == PROBLEM}
    assert problems == {DEVICE, DRIVER, "GPU: GPUs"}


def test_driver_and_torch_that_hang_are_asked_once_and_are_the_only_problems(made, monkeypatch):
    asked = []

    def ask(question, *arguments):
        asked.append(question)
        raise NoAnswerError("no answer within 120 s")

    made.answers["torch"] = NoAnswerError("no answer within 120 s")
    assert made.complaints("cpu") == {TORCH: PROBLEM, DEVICE: PROBLEM}
    assert made.examine(probes=PROBES[:1]).device == "cuda:0"
    monkeypatch.setattr(questions, "ask", ask)
    made.examine("cuda")
    assert sorted(asked) == ["driver", "isolation", "torch"]


def test_no_compiler_is_a_warning_where_all_libraries_are_built(made, monkeypatch):
    made.without_gpu()
    made.program("g++", "not gcc")
    monkeypatch.setattr(Cache, "find_without_tools", lambda *arguments: made.root / "library")
    found = made.look(CPLUSPLUS)
    assert found.state == WARNING
    assert found.found.endswith("but all libraries for cpu are built already")
    assert made.examine().usable


def test_cache_in_a_missing_home_is_one_problem(made, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", "~nobody-of-this-name/cache")
    assert made.complaints() == {CACHE: PROBLEM}


def test_readings_that_a_gpu_does_not_support_are_no_warning(made):
    made.gpu |= dict.fromkeys(("mig.mode.current", "clocks.max.sm"), "[N/A]")
    made.answers["conditions"] = {"throttle_reasons": []}
    assert made.complaints() == {}
    made.gpu.clear()
    made.remove("nvidia-smi")
    assert made.complaints() == {PROGRAMS: WARNING}


def test_probe_that_fails_is_a_warning_with_the_reason(made):
    def fail(machine):
        raise ValueError("no such thing\nat all")

    probes = (Probe("area", "broken", fail), Probe("area", "fine", lambda machine: ok("well")))
    broken, fine = made.examine(probes=probes).findings
    assert (broken.state, fine.state) == (WARNING, OK)
    assert broken.found == "unknown, because looking failed: ValueError: no such thing"


def test_no_file_of_the_kernel_ends_the_report(made, tmp_path):
    for name in ("proc", "sys"):
        (tmp_path / name).rename(tmp_path / f"no-{name}")
    report = made.examine()
    assert len(report.findings) == len(PROBES)
    assert report.count(OK) < len(PROBES)


def test_every_complaint_says_what_to_do(made):
    made.remove("g++", "nvcc")
    made.gpu.clear()
    made.answers |= dict.fromkeys(made.answers, NoAnswerError("no answer"))
    complaints = [f for f in made.examine("cuda").findings if f.state != OK]
    assert complaints
    assert [f for f in complaints if not f.advice] == []
