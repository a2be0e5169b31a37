"""The machine as the kernel's files describe it, and devices by name."""

import json
import subprocess

import pytest
import torch

from losscli.errors import UnfitError, UsageError
from losscli.machine import allocator, cgroups, commands, description, devices, kernel_files, memory

MIB = 2**20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Write files of a made-up /proc and /sys."""
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


def test_memory_limit_of_a_container_is_read_at_the_mount_root(machine):
    machine("proc/self/cgroup", "0::/docker/abc\n")
    limit(machine, "", most=4 * MIB, used=3 * MIB, cached=1 * MIB)
    assert memory.free_bytes("cpu") == 2 * MIB


def test_tightest_memory_limit_of_all_ancestors_counts(machine):
    machine("proc/self/cgroup", "0::/user/me\n")
    limit(machine, "/user/me", most="max", used=0)
    limit(machine, "/user", most=6 * MIB, used=5 * MIB)
    limit(machine, "", most=7 * MIB, used=0)
    assert memory.free_bytes("cpu") == 1 * MIB


def test_memory_used_beyond_the_limit_leaves_nothing_free(machine):
    machine("proc/self/cgroup", "0::/\n")
    limit(machine, "", most=1 * MIB, used=2 * MIB)
    assert memory.free_bytes("cpu") == 0


def test_memory_limits_of_cgroup_version_1_are_read(machine):
    machine("proc/self/cgroup", "5:cpu,cpuacct:/me\n4:memory:/me\n")
    machine("sys/fs/cgroup/memory/me/memory.limit_in_bytes", f"{5 * MIB}\n")
    machine("sys/fs/cgroup/memory/me/memory.usage_in_bytes", f"{4 * MIB}\n")
    machine("sys/fs/cgroup/memory/me/memory.stat", f"total_inactive_file {2 * MIB}\n")
    assert memory.free_bytes("cpu") == 3 * MIB


def test_largest_cache_counts_as_last_level(machine):
    for index, size in enumerate(("48K", "2048K", "32M")):
        machine(f"sys/devices/system/cpu/cpu0/cache/index{index}/size", f"{size}\n")
    assert memory.cache_bytes("cpu") == 32 * MIB


def test_reported_small_cache_is_used(machine):
    machine("sys/devices/system/cpu/cpu0/cache/index0/size", "512K\n")
    assert memory.cache_bytes("cpu") == MIB // 2


def test_cpu_without_cache_information_has_a_default_cache(machine):
    assert memory.cache_bytes("cpu") == memory.DEFAULT_CACHE_BYTES


@pytest.fixture
def gpus(monkeypatch):
    return lambda count: monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("name", "count", "device"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
    ],
)
def test_device_names_are_resolved(gpus, name, count, device):
    gpus(count)
    assert devices.resolve_device(name) == device


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("cuda", 0, "device cuda needs a GPU, but torch .*; use --device cpu"),
        ("cuda:1", 1, "there is no cuda:1; this machine has cuda:0$"),
        ("cuda:7", 4, "there is no cuda:7; this machine has cuda:0 to cuda:3"),
    ],
)
def test_missing_gpu_is_an_error(gpus, name, count, message):
    gpus(count)
    with pytest.raises(UnfitError, match=message):
        devices.resolve_device(name)


def test_unknown_device_kind_is_an_error():
    with pytest.raises(UsageError, match="auto, cpu, cuda or cuda:N, but is 'tpu'"):
        devices.resolve_device("tpu")


def test_machine_description_is_flat_json():
    facts = description.describe("cpu")
    assert not any(isinstance(value, dict | list) for value in facts.values())
    assert json.loads(json.dumps(facts)) == facts
    assert facts["threads"] == torch.get_num_threads()
    assert facts["torch"] == torch.__version__
    assert facts["gpu"] is None


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "''"])
def test_compiler_without_a_version_is_left_out(monkeypatch, compiler):
    monkeypatch.setenv("CXX", compiler)
    assert description.describe("cpu")["compiler"] is None


@pytest.mark.gpu
def test_a_gpu_is_described():
    facts = description.describe("cuda:0")
    assert facts["gpu"] == torch.cuda.get_device_name(0)
    assert facts["gpu_sms"] > 0
    assert 0 < memory.free_bytes("cuda:0") <= facts["gpu_memory_bytes"]
    assert memory.cache_bytes("cuda:0") == facts["gpu_cache_bytes"] > 0


def test_invalid_compiler_command_is_unknown(monkeypatch):
    monkeypatch.setenv("CXX", '"')
    assert description.describe("cpu")["compiler"] is None


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


def test_a_smaller_pad_keeps_freed_memory_as_well(monkeypatch):
    for name, value in (allocator.KEEPING | allocator.SMALL_PAD).items():
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
    ids=["no files", "version 2, no limit", "version 2", "version 1, no limit", "version 1"],
)
def test_quota_of_cores_is_read(machine, files, cores):
    machine("proc/self/cgroup", "3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n")
    for name, text in files.items():
        machine(f"sys/fs/cgroup/{name}", f"{text}\n")
    assert cgroups.core_quota() == cores


def test_tightest_memory_limit_is_told(machine):
    machine("proc/self/cgroup", "0::/user/me\n")
    assert memory.limit_bytes() is None
    limit(machine, "/user/me", most=6 * MIB, used=0)
    limit(machine, "", most=7 * MIB, used=0)
    assert memory.limit_bytes() == 6 * MIB


def test_program_that_hangs_or_fails_prints_nothing(monkeypatch):
    monkeypatch.setattr(commands, "SECONDS", 0.05)
    assert commands.printed(["sleep", "5"]) is None
    assert commands.printed(["false"]) is None
    assert commands.printed(["printf", "a\\nb\\n"]) == "a\nb\n"
