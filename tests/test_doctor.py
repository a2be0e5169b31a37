import errno
import os
import re
import resource
import shutil
import sys
import tempfile
from typing import Any
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
    assert {each.name: each.found for each in report.results if each.area == "GPU"} == {
        "driver": "580.82.07, CUDA 13.0 at most",
        "GPUs": "cuda:0 NVIDIA H200 (150.0 GiB)",
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
    found = {finding.name: finding for finding in report.results}
    assert found["GPUs"].found == "none; runs use the CPU"
    assert "cpu needs none; looked in the PATH" in found["nvcc"].found
    assert not {"driver", "clocks", "host compiler"} & set(found)


NO_GPU = "device cuda needs a GPU, but torch finds no GPU; use --device cpu"
NO_CUDA = "device cuda needs a GPU, but torch 2.13.0+cpu is built without CUDA; use --device cpu"
NO_SECOND = "there is no cuda:1; this machine has cuda:0"
NO_TORCH = "ModuleNotFoundError: No module named 'torch'"
OF_CPU = {"version": "2.13.0+cpu", "cuda": None, "capabilities": [], "uuid": ""}
OLD = "The NVIDIA driver on your system is too old (found version 12040)."


READ_ONLY = OSError(errno.EROFS, os.strerror(errno.EROFS))
LIMITS = {resource.RLIMIT_AS: (2**33, -1), resource.RLIMIT_NOFILE: (256, -1)}
HANGS = "no response within 120 s"
CACHE, CPLUSPLUS, DEVICE = "build: cache", "build: C++ compiler", "software: device"
DRIVER, NVCC, TORCH = "GPU: driver", "build: nvcc", "software: torch"
PROGRAMS, SHARING = "GPU: other programs", "GPU: sharing"
UNFIT = {"device": None, "unfit": NO_GPU}
HIDDEN = {"environ": {"CUDA_VISIBLE_DEVICES": ""}, "driver": {"gpus": []}, "torch": UNFIT}
TOO_OLD = {"driver": {"cuda": [12, 4]}, "torch": UNFIT | {"warnings": [OLD]}}
SECOND = {"torch": {"device": None, "unfit": NO_SECOND}}
GROUP = "sys/fs/cgroup/"
LOOKS: dict[str, dict[str, dict[str, Any]]] = {
    DEVICE: {
        "torch without CUDA": {"torch": OF_CPU | {"device": "cpu"}},
        "torch without CUDA, cuda": {"torch": OF_CPU | {"device": None, "unfit": NO_CUDA}},
        "GPU that does not compute": {"torch": {"trouble": "AcceleratorError: CUDA error"}},
        "old driver, cuda": TOO_OLD,
        "hidden GPU, cuda": HIDDEN,
        "second GPU, cuda:1": SECOND,
        "no GPU, cuda": {"torch": UNFIT},
        "no torch, cpu": {"torch": NO_TORCH},
    },
    TORCH: {
        "library, cpu": {"torch": "OSError: libcudart.so.13: cannot open shared object file"},
        "missing, cpu": {"torch": NO_TORCH},
        "crash, cpu": {"torch": "the process was ended by SIGSEGV"},
        "old": {"torch": {"version": "2.4.1+cu121"}},
    },
    DRIVER: {
        "old, cuda": TOO_OLD,
        "hanging, cuda": {"driver": HANGS},
        "hanging, cpu": {"driver": HANGS, "torch": {"device": "cpu"}},
    },
    "GPU: GPUs": {"hidden, cuda": HIDDEN, "second, cuda:1": SECOND},
    NVCC: {
        "missing": {"missing": ["nvcc"]},
        "missing, cuda": {"missing": ["nvcc"]},
        "of another CUDA": {"programs": {"nvcc": NVCC_VERSION.replace("13.0", "12.8")}},
        "for an old GPU": {"torch": {"capabilities": [[6, 1]]}},
    },
    CPLUSPLUS: {
        "another": {"programs": {"g++": "not gcc"}},
        "another, cpu": {"programs": {"g++": "not gcc"}},
        "none": {"missing": ["g++", "nvcc"], "environ": {"PATH": "ROOT/bin"}},
    },
    "build: ninja": {"missing": {"items": [(sys.modules, "ninja", None)]}},
    CACHE: {
        "below a file": {"environ": {"LOSSCLI_CACHE_DIR": "ROOT/proc/cpuinfo/cache"}},
        "read-only": {"items": [(vars(tempfile), "TemporaryFile", Mock(side_effect=READ_ONLY))]},
        "noexec": {"items": [(vars(os), "statvfs", lambda path: Mock(f_flag=os.ST_NOEXEC))]},
    },
    "host: memory": {
        "little": {"files": {"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\n"}},
        "of a control group": {
            "files": {
                f"{GROUP}memory.max": f"{8 * 2**30}",
                f"{GROUP}memory.current": f"{2**30}",
                f"{GROUP}memory.stat": "inactive_file 0\n",
            }
        },
    },
    "host: CPU": {"quota": {"files": {f"{GROUP}cpu.max": "150000 100000"}}},
    "host: governor": {
        "powersave": {
            "files": {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n"}
        }
    },
    "host: limits": {
        "of the shell": {
            "items": [(vars(resource), "getrlimit", lambda each: LIMITS.get(each, (-1, -1)))]
        }
    },
    "host: other programs": {
        "few": {"attributes": {"busy": 0.05}},
        "many": {"attributes": {"busy": 0.6}},
        "unknown": {"attributes": {"busy": None}},
    },
    "host: allocator": {"other": {"items": [(vars(allocator), "unsettable", lambda: "not glibc")]}},
    "host: isolation": {"little": {"isolation": {"reached": ["session", "memory"]}}},
    SHARING: {
        "one process": {"gpu": {"compute_mode": "Exclusive_Process"}},
        "closed": {"gpu": {"compute_mode": "Prohibited"}},
    },
    PROGRAMS: {
        "memory": {"gpu": {"memory.used": "20480"}},
        "time": {"gpu": {"utilization.gpu": "87"}},
        "named": {"attributes": {"processes": f"GPU-{UUID}, 4711, python a.py, 20480"}},
        "of another GPU": {"attributes": {"processes": "GPU-0-9, 4711, python a.py, 20480"}},
    },
    "GPU: clocks": {
        "throttled": {"conditions": {"throttle_reasons": ["too hot"]}},
        "unknown": {"conditions": {"unknown": "nvidia-ml-py is not installed"}},
    },
}
"""What is different from a machine with all that is needed, by the finding and a name."""


def change(made, patch, *, environ=None, files=None, programs=None, gpu=None, **answers):
    for name, value in (environ or {}).items():
        patch.setenv(name, value.replace("ROOT", str(made.root)))
    for name, text in (files or {}).items():
        made.write(name, text)
    for name, text in (programs or {}).items():
        made.program(name, text)
    made.remove(*answers.pop("missing", ()))
    made.gpu |= gpu or {}
    vars(made).update(answers.pop("attributes", {}))
    for items, name, value in answers.pop("items", ()):
        patch.setitem(items, name, value)
    for question, answer in answers.items():
        if isinstance(answer, str):
            made.answers[question] = NoAnswerError(answer)
        else:
            made.answers[question] |= answer


def test_each_fault_of_a_machine_is_reported_with_its_remedy(tmp_path, golden):
    told = ""
    for name, cases in LOOKS.items():
        for case, changes in cases.items():
            root = tmp_path / re.sub("[^a-z]", "-", f"{name} {case}")
            with naming(name, case), pytest.MonkeyPatch.context() as patch:
                made = make_up(root, patch)
                change(made, patch, **changes)
                found = made.look(name, case.partition(", ")[2] or "auto")
            text = f"{name}, {case}\n    {found.state}: {found.found}\n"
            if found.advice:
                text += f"    -> {found.advice}\n"
            told += text.replace(str(root), "ROOT").replace(sys.executable, "PYTHON")
    golden("doctor.txt", told)


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
    assert "writes no output" in made.look("build: host compiler").found


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
        raise NoAnswerError("no response within 120 s")

    made.answers["torch"] = NoAnswerError("no response within 120 s")
    assert made.complaints("cpu") == {TORCH: PROBLEM, DEVICE: PROBLEM}
    assert made.examine(probes=PROBES[:1]).device == "cuda:0"
    monkeypatch.setattr(questions, "ask", ask)
    made.examine("cuda")
    assert sorted(asked) == ["driver", "isolation", "torch"]


def test_no_compiler_is_a_warning_where_all_libraries_are_built(made, monkeypatch):
    made.without_gpu()
    made.program("g++", "not gcc")
    assert made.look(CPLUSPLUS).state == PROBLEM
    monkeypatch.setattr(Cache, "find_without_tool", lambda *arguments: made.root / "library")
    found = made.look(CPLUSPLUS)
    assert found.state == WARNING
    assert found.found.endswith("but all libraries for cpu are built already")
    assert made.examine().usable


def test_cache_in_a_missing_home_is_one_problem(made, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", "~nobody-of-this-name/cache")
    assert made.complaints() == {CACHE: PROBLEM}


def test_readings_that_a_gpu_does_not_support_are_no_warning(made):
    made.gpu["clocks.max.sm"] = "[N/A]"
    made.answers["conditions"] = {"throttle_reasons": []}
    assert made.complaints() == {}
    made.answers["conditions"]["sm_clock_hz"] = [345e6]
    made.gpu.clear()
    made.remove("nvidia-smi")
    assert made.complaints() == {PROGRAMS: WARNING}


def test_probe_that_fails_is_a_warning_with_the_reason(made):
    def fail(machine):
        raise ValueError("no such thing\nat all")

    probes = (Probe("area", "broken", fail), Probe("area", "fine", lambda machine: ok("well")))
    broken, fine = made.examine(probes=probes).results
    assert (broken.state, fine.state) == (WARNING, OK)
    assert broken.found == "unknown, because the probe failed: ValueError: no such thing"


def test_no_file_of_the_kernel_ends_the_report(made, tmp_path):
    for name in ("proc", "sys"):
        (tmp_path / name).rename(tmp_path / f"no-{name}")
    report = made.examine()
    assert len(report.results) == len(PROBES)
    assert report.count(OK) < len(PROBES)


def test_every_complaint_says_what_to_do(made):
    made.remove("g++", "nvcc")
    made.gpu.clear()
    made.answers |= dict.fromkeys(made.answers, NoAnswerError("no answer"))
    complaints = [f for f in made.examine("cuda").results if f.state != OK]
    assert complaints
    assert [f for f in complaints if not f.advice] == []
