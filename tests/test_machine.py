import json
import subprocess

import pytest
import torch

from losscli.errors import UnfitError, UsageError
from losscli.machine import allocator, commands, description, devices, kernel_files, memory
from losscli.machine.differences import differences, parts_ways

MIB = 2**20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_files, "PROC", tmp_path / "proc")
    monkeypatch.setattr(kernel_files, "SYS", tmp_path / "sys")

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("proc/meminfo", "MemTotal: 16384 kB\nMemFree: 1024 kB\nMemAvailable: 8192 kB\n")
    return write


def limit(machine, folder, most, used, cached=0):
    machine(f"sys/fs/cgroup{folder}/memory.max", f"{most}\n")
    machine(f"sys/fs/cgroup{folder}/memory.current", f"{used}\n")
    machine(f"sys/fs/cgroup{folder}/memory.stat", f"anon 1\ninactive_file {cached}\n")


def test_free_memory_is_the_kernels_available_memory(machine):
    assert memory.free_bytes("cpu") == 8 * MIB


@pytest.mark.parametrize(
    ("group", "limits", "free"),
    [
        ("/docker/abc", {"": (4, 3, 1)}, 2),  # of a container, at the root of the mount
        ("/user/me", {"/user/me": ("max", 0), "/user": (6, 5), "": (7, 0)}, 1),  # the tightest
        ("/", {"": (1, 2)}, 0),
    ],
)
def test_memory_limit_of_a_control_group_counts(machine, group, limits, free):
    machine("proc/self/cgroup", f"0::{group}\n")
    assert memory.limit_bytes() is None
    for folder, (most, *used) in limits.items():
        most = most if most == "max" else most * MIB
        limit(machine, folder, most, *(count * MIB for count in used))
    assert memory.free_bytes("cpu") == free * MIB
    least = min(most for most, *_ in limits.values() if most != "max")
    assert memory.limit_bytes() == least * MIB


def test_memory_limits_of_cgroup_version_1_are_read(machine):
    machine("proc/self/cgroup", "5:cpu,cpuacct:/me\n4:memory:/me\n")
    machine("sys/fs/cgroup/memory/me/memory.limit_in_bytes", f"{5 * MIB}\n")
    machine("sys/fs/cgroup/memory/me/memory.usage_in_bytes", f"{4 * MIB}\n")
    machine("sys/fs/cgroup/memory/me/memory.stat", f"total_inactive_file {2 * MIB}\n")
    assert memory.free_bytes("cpu") == 3 * MIB


def test_largest_cache_counts_as_last_level(machine):
    assert memory.cache_bytes("cpu") == memory.DEFAULT_CACHE_BYTES
    for sizes, largest in ((["512K"], MIB // 2), (["48K", "2048K", "32M"], 32 * MIB)):
        for index, size in enumerate(sizes):
            machine(f"sys/devices/system/cpu/cpu0/cache/index{index}/size", f"{size}\n")
        assert memory.cache_bytes("cpu") == largest


def test_device_names_are_resolved(monkeypatch):
    for name, count, device in (
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert devices.resolve_device(name) == device
    for name, count, message in (
        ("cuda", 0, "device cuda needs a GPU, but torch .*; use --device cpu"),
        ("cuda:1", 1, "there is no cuda:1; this machine has cuda:0$"),
        ("cuda:7", 4, "there is no cuda:7; this machine has cuda:0 to cuda:3"),
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(UnfitError, match=message):
            devices.resolve_device(name)
    with pytest.raises(UsageError, match="auto, cpu, cuda or cuda:N, but is 'tpu'"):
        devices.resolve_device("tpu")


def test_machine_description_is_flat_json():
    facts = description.describe("cpu")
    assert not any(isinstance(value, dict | list) for value in facts.values())
    assert json.loads(json.dumps(facts)) == facts
    assert facts["threads"] == torch.get_num_threads()
    assert facts["torch"] == torch.__version__
    assert facts["gpu"] is None


def test_compiler_without_a_version_is_left_out(monkeypatch):
    for compiler in ("no-such-compiler", "false", "''", '"'):
        monkeypatch.setenv("CXX", compiler)
        assert description.describe("cpu")["compiler"] is None


@pytest.mark.gpu
def test_a_gpu_is_described():
    facts = description.describe("cuda:0")
    assert facts["gpu"] == torch.cuda.get_device_name(0)
    assert facts["gpu_sms"] > 0
    assert 0 < memory.free_bytes("cuda:0") <= facts["gpu_memory_bytes"]
    assert memory.cache_bytes("cuda:0") == facts["gpu_cache_bytes"] > 0


def test_gpu_that_cannot_synchronize_is_broken(monkeypatch):
    def wait(device):
        if device == "cuda:1":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    assert devices.is_broken("cuda:1")
    assert not devices.is_broken("cuda:0")
    assert not devices.is_broken("cpu")


@pytest.mark.skipif(not (description.SOURCES / ".git").exists(), reason="losscli is not a checkout")
def test_commit_is_that_of_losscli_in_any_directory(tmp_path, monkeypatch):
    here = description.commit()
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q", "."], check=True)
    assert description.commit() == here
    assert here


def test_an_installed_losscli_has_no_commit_of_the_repository_around_it(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(description, "SOURCES", tmp_path / "venv")
    assert description.commit() is None


def test_a_process_that_keeps_freed_memory_starts_with_its_variables(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    kept, default = allocator.environment(keeps=True), allocator.environment(keeps=False)
    assert allocator.KEEPING.items() <= kept.items()
    assert default["MALLOC_TRIM_THRESHOLD_"] == "1"
    assert not allocator.KEEPING.items() & default.items()


def test_a_process_that_began_to_keep_memory_starts_others_that_do_not(monkeypatch):
    for name, value in allocator.KEEPING.items():
        monkeypatch.setenv(name, value)
    assert allocator.keeps()
    assert not allocator.KEEPING.keys() & allocator.environment(keeps=False).keys()
    for name, value in allocator.SMALL_PAD.items():  # keeps freed memory as well
        monkeypatch.setenv(name, value)
    assert allocator.keeps()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
    ],
)
def test_quota_of_cores_is_read(machine, files, cores):
    machine("proc/self/cgroup", "3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n")
    for name, text in files.items():
        machine(f"sys/fs/cgroup/{name}", f"{text}\n")
    assert kernel_files.core_quota() == cores


def test_program_that_hangs_or_fails_prints_nothing(monkeypatch):
    monkeypatch.setattr(commands, "SECONDS", 0.05)
    assert commands.printed(["sleep", "5"]) is None
    assert commands.printed(["false"]) is None
    assert commands.printed(["printf", "a\\nb\\n"]) == "a\nb\n"


RAN_OUT = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
    RuntimeError("CUDA driver error: out of memory"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("NCCL error: Cuda failure 2 'out of memory'"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]
OTHERS = [
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    ValueError("CUDA error: out of memory"),
    RuntimeError("memory"),
]


def test_memory_that_ran_out_is_known_by_its_type_or_message():
    assert [error for error in (*RAN_OUT, *OTHERS) if memory.is_out_of_memory(error)] == RAN_OUT


CPU = {"device": "cpu", "cpu": "A", "threads": 2, "torch": "2.13.0", "os": "Linux"}
GPU = CPU | {"device": "cuda:0", "gpu": "H200", "gpu_sms": 132, "gpu_driver": "580"}


def graded(before, **changes):
    return [(d.fact, d.decisive) for d in differences(before, before | changes)]


def test_differences_are_decisive_or_notes():
    assert differences(CPU, dict(CPU)) == differences(GPU, dict(GPU)) == []
    for before, fact, decisive in (
        (CPU, "cpu", True),
        (CPU, "threads", True),
        (GPU, "gpu", True),
        (GPU, "gpu_sms", True),  # a part of a GPU
        (GPU, "cpu", False),
        (GPU, "threads", False),
        (GPU, "gpu_driver", False),
        (CPU, "torch", False),
        (CPU, "os", False),
        (CPU, "commit", False),
    ):
        assert graded(before, **{fact: "other"}) == [(fact, decisive)], fact
    # Decisive ones come first, and what changes all the time is none.
    assert graded(CPU, torch="2.14.0", cpu="B") == [("cpu", True), ("torch", False)]
    assert graded(CPU, gpu_temperature=60, load_average=3.0) == []


def test_gpu_and_cpu_differ_only_by_device_and_an_unknown_fact_is_shown_as_unknown():
    (unlike,) = differences(CPU, GPU)
    assert (str(unlike), unlike.decisive) == ("device: cpu, then cuda", True)
    assert graded(GPU, device="cuda:1") == [("device", False)]
    (unlike,) = differences(GPU, GPU | {"gpu_driver": None})
    assert (str(unlike), unlike.decisive) == ("driver: 580, then unknown", False)


def test_resume_refuses_differences_that_need_a_new_run():
    for fact in ("cpu", "torch", "commit", "compiler", "os"):
        (unlike,) = differences(CPU, CPU | {fact: "other"})
        assert parts_ways(unlike) is (fact != "os")
