"""`losscli doctor` finds what is wrong with made-up machines."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections import namedtuple
from typing import Any

import pytest

from losscli.build.cache import Cache
from losscli.build.plan import installed_torch
from losscli.doctor import building, questions
from losscli.doctor.findings import OK, PROBLEM, WARNING, Probe, ok
from losscli.doctor.machine import Machine, Torch
from losscli.doctor.probes import PROBES, examine
from losscli.doctor.questions import NoAnswerError
from losscli.machine import allocator
from tests.doctoring import UUID, MadeUp, make_up
from tests.standin import GCC_VERSION, NVCC_VERSION


@pytest.fixture
def made(tmp_path, monkeypatch):
    return make_up(tmp_path, monkeypatch)


def states(made: MadeUp, asked: str = "auto") -> dict[str, str]:
    """The state of each finding that is not ok, by area and name."""
    found = made.examine(asked).findings
    return {f"{f.area}: {f.name}": f.state for f in found if f.state != OK}


def test_h200_with_everything_has_no_complaint(made):
    report = made.examine()
    assert [finding for finding in report.findings if finding.state != OK] == []
    assert (report.device, report.usable) == ("cuda:0", True)
    found = {finding.name: finding.found for finding in report.findings if finding.area == "GPU"}
    assert found == {
        "driver": "580.82.07, CUDA 13.0 at most",
        "GPUs": "cuda:0 NVIDIA H200 (150.0 GiB)",
        "partitions": "MIG is off",
        "clocks": "345 of 1980 MHz, 31 °C, 76 W, not throttled",
        "sharing": "several processes may use it",
        "other programs": "none",
    }


def test_machine_without_gpu_is_fine_for_the_cpu(made):
    made.without_gpu()
    made.remove("nvcc")
    report = made.examine()
    assert report.device == "cpu"
    assert states(made) == {}
    found = {finding.name: finding for finding in report.findings}
    assert found["GPUs"].found == "none; runs use the CPU"
    assert "cpu needs none; looked in the PATH" in found["nvcc"].found
    assert not {"driver", "clocks", "host compiler"} & set(found)


def test_missing_gpu_is_a_problem_where_one_is_asked_for(made):
    made.without_gpu()
    made.answers["torch"] |= {
        "device": None,
        "unfit": "device cuda needs a GPU, but torch finds no GPU; use --device cpu",
    }
    found = states(made, "cuda")
    assert {name for name, state in found.items() if state == PROBLEM} == {
        "software: device",
        "GPU: driver",
        "GPU: GPUs",
    }
    assert made.look("software", "device", "cuda").advice == "Use --device cpu."


def test_second_gpu_that_is_not_there_is_a_problem(made):
    told = "there is no cuda:1; this machine has cuda:0"
    made.answers["torch"] |= {"device": None, "unfit": told}
    report = made.examine("cuda:1")
    assert (report.device, report.usable) == ("cuda:1", False)
    assert made.look("software", "device", "cuda:1").found == told
    assert "the driver shows cuda:0 NVIDIA H200" in made.look("GPU", "GPUs", "cuda:1").found


def test_gpu_that_torch_cannot_use_is_a_warning_unless_it_is_asked_for(made):
    made.answers["torch"] |= {"version": "2.13.0+cpu", "cuda": None, "device": "cpu"}
    made.answers["torch"] |= {"capabilities": [], "uuid": ""}
    found = made.look("software", "device")
    assert found.state == WARNING
    assert "cpu, although there is a GPU (NVIDIA H200)" in found.found
    assert "a torch that is built with CUDA" in found.advice
    unfit = "device cuda needs a GPU, but torch 2.13.0+cpu is built without CUDA; use --device cpu"
    made.answers["torch"] |= {"device": None, "unfit": unfit}
    found = made.look("software", "device", "cuda")
    assert found.state == PROBLEM
    assert "a torch that is built with CUDA" in found.advice


def test_driver_that_is_too_old_for_torch_is_a_problem(made):
    made.answers["driver"]["cuda"] = [12, 4]
    made.answers["torch"] |= {
        "device": None,
        "unfit": "device cuda needs a GPU, but torch finds no GPU; use --device cpu",
        "warnings": ["The NVIDIA driver on your system is too old (found version 12040)."],
    }
    found = made.look("GPU", "driver", "cuda")
    assert found.state == PROBLEM
    assert found.found.endswith("CUDA 12.4 at most, but torch is built for CUDA 13.0")
    assert found.advice.startswith("Update the driver to one for CUDA 13, or install a torch built")
    found = made.look("software", "device", "cuda")
    assert "driver on your system is too old" in found.found
    assert found.advice.startswith("Update the driver")


def test_hidden_gpu_names_the_variable(made, monkeypatch):
    made.answers["driver"]["gpus"] = []
    unfit = "device cuda needs a GPU, but torch finds no GPU; use --device cpu"
    made.answers["torch"] |= {"device": None, "unfit": unfit}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for area, name in (("software", "device"), ("GPU", "GPUs")):
        found = made.look(area, name, "cuda")
        assert found.state == PROBLEM
        assert "CUDA_VISIBLE_DEVICES is ''" in found.advice


def test_gpu_that_does_not_compute_is_a_problem(made):
    made.answers["torch"]["trouble"] = "AcceleratorError: CUDA error: out of memory"
    found = made.look("software", "device")
    assert found.state == PROBLEM
    assert "cuda:0 does not compute: AcceleratorError" in found.found


def test_driver_that_hangs_is_a_problem_of_the_gpu_alone(made):
    made.answers["driver"] = NoAnswerError("no answer within 120 s")
    assert made.look("GPU", "driver", "cuda").state == PROBLEM
    made.answers["torch"]["device"] = "cpu"
    assert made.look("GPU", "driver", "cpu").state == WARNING
    assert made.examine("cpu").usable


def test_driver_and_torch_that_hang_are_asked_once(made, monkeypatch):
    asked = []

    def ask(question: str, *arguments: str) -> dict[str, Any]:
        asked.append(question)
        raise NoAnswerError("no answer within 120 s")

    monkeypatch.setattr(questions, "ask", ask)
    made.examine("cuda")
    assert sorted(asked) == ["driver", "isolation", "torch"]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("OSError: libcudart.so.13: cannot open shared object file", "Reinstall torch; "),
        ("ModuleNotFoundError: No module named 'torch'", "Run `pip install torch`; "),
        ("the process was ended by SIGSEGV", "Reinstall torch; "),
    ],
)
def test_torch_that_is_broken_or_missing_is_a_problem(made, error, advice):
    made.answers["torch"] = NoAnswerError(error)
    found = made.look("software", "torch", "cpu")
    assert (found.state, found.found) == (PROBLEM, f"cannot be imported: {error}")
    assert found.advice.startswith(advice)
    assert states(made, "cpu") == {"software: torch": PROBLEM, "software: device": PROBLEM}
    assert made.examine().device == "cuda:0"


def test_old_torch_is_a_problem(made):
    made.answers["torch"]["version"] = "2.4.1+cu121"
    found = made.look("software", "torch")
    assert found.state == PROBLEM
    assert "torch>=2.10" in found.advice


@pytest.mark.parametrize("asked", ["auto", "cpu"])
def test_missing_compiler_is_a_problem(made, asked):
    if asked == "cpu":
        made.without_gpu()
    made.program("g++", "not gcc")
    found = made.look("build", "C++ compiler", asked)
    assert found.state == PROBLEM
    assert "is not GCC" in found.found
    assert made.look("build", "kernels", asked).state == PROBLEM


def test_no_compiler_at_all_is_a_problem(made, monkeypatch):
    made.without_gpu()
    made.remove("g++")
    monkeypatch.setenv("PATH", str(made.root / "bin"))
    found = made.look("build", "C++ compiler")
    assert (found.state, found.found) == (
        PROBLEM,
        "no C++ compiler: neither g++ nor c++ is on the PATH",
    )
    assert found.advice.startswith("Install g++")


def test_no_compiler_is_a_warning_where_all_libraries_are_built(made, monkeypatch):
    made.without_gpu()
    made.program("g++", "not gcc")
    built = made.root / "library"
    monkeypatch.setattr(Cache, "find_without_tools", lambda *arguments: built)
    found = made.look("build", "C++ compiler")
    assert found.state == WARNING
    assert found.found.endswith("but all libraries for cpu are built already")
    assert made.look("build", "kernels").found.startswith("29 of 29") or made.examine().usable
    assert made.examine().usable


@pytest.mark.parametrize(
    ("when", "error", "advice"),
    [
        ("*", "g++: fatal error: cannot execute 'cc1plus': no such file", "reinstall g++"),
        ("*mse*", "fatal error: cmath: No such file or directory", "reinstall g++"),
        ("*torch/include*", "fatal error: c10/a.h: No such file", "install torch 2.10 or newer"),
        ("*-lc10*", "/usr/bin/ld: cannot find -lc10", "reinstall torch"),
    ],
    ids=["always", "kernels", "operators", "link"],
)
def test_compiler_that_fails_in_a_build_is_a_problem(made, when, error, advice):
    made.without_gpu()
    made.program("g++", GCC_VERSION, f'case "$*" in {when}) echo "{error}" >&2; exit 1 ;; esac')
    found = made.look("build", "C++ compiler")
    assert found.state == PROBLEM
    assert f"does not compile: {error}" in found.found
    assert advice in found.advice


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


def test_missing_nvcc_says_where_it_was_looked_for(made):
    made.remove("nvcc")
    found = made.look("build", "nvcc")
    assert found.state == PROBLEM
    places = (
        f"looked in the PATH, {made.root / 'local'}/cuda*, {made.root / 'site-packages'}/nvidia"
    )
    assert found.found.endswith(places)
    assert found.advice.startswith("Install a CUDA 13 toolkit")
    assert made.look("build", "nvcc", "cuda").state == PROBLEM


def test_nvcc_of_another_cuda_than_torchs_is_a_problem(made):
    made.program("nvcc", NVCC_VERSION.replace("13.0", "12.8"))
    found = made.look("build", "nvcc")
    assert found.state == PROBLEM
    assert "is CUDA 12.8, but torch is built for CUDA 13.0" in found.found


def test_gpu_that_nvcc_does_not_compile_for_is_a_problem(made):
    made.answers["torch"]["capabilities"] = [[6, 1]]
    found = made.look("build", "nvcc")
    assert found.state == PROBLEM


def test_host_compiler_that_nvcc_refuses_is_a_problem(made):
    trouble = "echo 'error: -- unsupported GNU version! gcc versions later' >&2; exit 1"
    made.program("nvcc", NVCC_VERSION, trouble)
    found = made.look("build", "host compiler")
    assert found.state == PROBLEM
    assert "nvcc fails with" in found.found
    assert "unsupported GNU version" in found.found
    assert "CUDAHOSTCXX" in found.advice


def test_compiler_that_makes_nothing_is_a_problem(made):
    made.program("nvcc", NVCC_VERSION, "exit 0")
    assert "makes no output" in made.look("build", "host compiler").found


def test_wrong_number_of_jobs_is_a_problem(made, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "many")
    found = made.look("build", "jobs")
    assert (found.state, found.advice) == (PROBLEM, "Correct or unset MAX_JOBS.")
    monkeypatch.setenv("MAX_JOBS", "3")
    assert made.look("build", "jobs").found == "3 compilers at once (MAX_JOBS)"


def test_missing_ninja_is_a_problem(made, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ninja", None)
    found = made.look("build", "ninja")
    assert (found.state, found.advice) == (PROBLEM, "Run `pip install ninja`.")


def test_cache_that_cannot_be_written_is_a_problem(made, monkeypatch):
    made.write("file", "")
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(made.root / "file" / "cache"))
    found = made.look("build", "cache")
    assert found.state == PROBLEM
    assert "file/cache: Not a directory" in found.found
    assert "LOSSCLI_CACHE_DIR" in found.advice


def test_cache_on_a_read_only_file_system_is_a_problem(made, monkeypatch):
    def refuse(**options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("losscli.build.cache.tempfile.TemporaryFile", refuse)
    found = made.look("build", "cache")
    assert found.state == PROBLEM
    assert "Read-only file system" in found.found


def test_cache_of_another_user_is_a_problem(made, monkeypatch):
    (made.root / "cache").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    if (made.root / "cache").stat().st_uid == 0:
        os.chown(made.root / "cache", 4243, -1)
    found = made.look("build", "cache")
    assert found.state == PROBLEM
    assert "belongs to user" in found.found


def test_cache_in_a_missing_home_is_one_problem(made, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", "~nobody-of-this-name/cache")
    assert states(made) == {"build: cache": PROBLEM}


def test_cache_that_is_mounted_noexec_is_a_problem(made, monkeypatch):
    statvfs = namedtuple("statvfs", "f_flag")
    monkeypatch.setattr(os, "statvfs", lambda path: statvfs(os.ST_NOEXEC))
    found = made.look("build", "cache")
    assert found.state == PROBLEM
    assert "noexec" in found.found


def test_full_disk_is_a_warning(made, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**40, 0, 2**30))
    found = made.look("build", "space")
    assert found.state == WARNING
    assert found.found.startswith("1.0 GiB free for ")


def test_doctor_leaves_no_cache_behind(made):
    made.examine()
    assert not (made.root / "cache").exists()


@pytest.mark.parametrize(
    ("file", "text", "name", "found"),
    [
        (
            "proc/meminfo",
            "MemTotal: 8388608 kB\nMemAvailable: 1048576 kB\n",
            "memory",
            "8.0 GiB, of which 1.0 GiB are free",
        ),
        ("sys/fs/cgroup/cpu.max", "150000 100000", "CPU", "allows the time of 1.5"),
        (
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "powersave\n",
            "governor",
            "powersave: ",
        ),
    ],
)
def test_files_of_the_kernel_give_warnings(made, file, text, name, found):
    made.write(file, text)
    finding = made.look("host", name)
    assert finding.state == WARNING
    assert found in finding.found
    assert finding.advice
    assert made.examine().usable


def test_memory_limit_of_a_control_group_is_told(made):
    made.write("sys/fs/cgroup/memory.max", f"{8 * 2**30}")
    made.write("sys/fs/cgroup/memory.current", f"{2**30}")
    made.write("sys/fs/cgroup/memory.stat", "inactive_file 0\n")
    found = made.look("host", "memory")
    assert found.state == OK
    assert found.found == "64.0 GiB, of which 7.0 GiB are free; the control group allows 8.0 GiB"


def test_limits_of_the_shell_are_a_warning(made, monkeypatch):
    given = {resource.RLIMIT_AS: 2**33, resource.RLIMIT_NOFILE: 256}
    real = resource.getrlimit
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (given[which], -1) if which in given else real(which)
    )
    found = made.look("host", "limits")
    assert found.state == WARNING
    assert "`ulimit -v` limits memory to 8.0 GiB" in found.found
    assert "`ulimit -n` limits open files to 256" in found.found


@pytest.mark.parametrize(("busy", "state"), [(0.05, OK), (0.6, WARNING), (None, WARNING)])
def test_other_programs_on_the_cpu(made, busy, state):
    made.busy = busy
    assert made.look("host", "other programs").state == state


def test_other_allocator_is_a_warning(made, monkeypatch):
    monkeypatch.setattr(allocator, "unsettable", lambda: "the C library is not glibc")
    assert made.look("host", "allocator").state == WARNING


def test_missing_isolation_is_a_warning_with_each_part(made):
    made.answers["isolation"] = {"reached": ["session", "open files", "memory"]}
    found = made.look("host", "isolation")
    assert found.state == WARNING
    assert "cannot isolate: environment, processes, signals, network, sockets" in found.found
    assert "user namespaces" in found.advice
    assert "Landlock" in found.advice


@pytest.mark.parametrize(
    ("field", "value", "name", "found"),
    [
        ("mig.mode.current", "Enabled", "partitions", "MIG is on"),
        ("compute_mode", "Exclusive_Process", "sharing", "one process at a time"),
        ("memory.used", "20480", "other programs", "20.0 GiB and 0 %"),
        ("utilization.gpu", "87", "other programs", "87 %"),
    ],
)
def test_settings_of_the_gpu_give_warnings(made, field, value, name, found):
    made.gpu[field] = value
    finding = made.look("GPU", name)
    assert finding.state == WARNING
    assert found in finding.found
    assert finding.advice
    assert made.examine().usable


def test_gpu_closed_to_computing_is_a_problem(made):
    made.gpu["compute_mode"] = "Prohibited"
    assert made.look("GPU", "sharing").state == PROBLEM


def test_readings_that_a_gpu_does_not_support_are_no_warning(made):
    made.gpu |= dict.fromkeys(("mig.mode.current", "clocks.max.sm"), "[N/A]")
    made.answers["conditions"] = {"throttle_reasons": []}
    assert states(made) == {}


def test_programs_on_the_gpu_are_named(made):
    made.processes = f"GPU-{UUID}, 4711, python train.py, 20480"
    found = made.look("GPU", "other programs")
    assert (found.state, found.found) == (WARNING, "in use by python train.py (4711)")


def test_programs_on_another_gpu_do_not_count(made):
    made.processes = "GPU-00000000-9999, 4711, python train.py, 20480"
    assert made.look("GPU", "other programs").state == OK


def test_throttled_gpu_is_a_warning(made):
    made.answers["conditions"]["throttle_reasons"] = ["hardware thermal slowdown"]
    found = made.look("GPU", "clocks")
    assert found.state == WARNING
    assert found.found.endswith("throttled: hardware thermal slowdown")


def test_missing_nvidia_ml_py_is_a_warning(made):
    made.answers["conditions"] = {"unknown": "nvidia-ml-py is not installed"}
    found = made.look("GPU", "clocks")
    assert found.state == WARNING
    assert "pip install nvidia-ml-py" in found.advice


def test_gpu_without_nvidia_smi_has_warnings(made):
    made.gpu.clear()
    assert states(made) == {"GPU: other programs": WARNING}


def test_probe_that_fails_is_a_warning_with_the_reason(made):
    def fail(machine: Machine) -> None:
        raise ValueError("no such thing\nat all")

    probes = (Probe("area", "broken", fail), Probe("area", "fine", lambda machine: ok("well")))
    broken, fine = examine(Machine("cpu"), probes=probes).findings
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
