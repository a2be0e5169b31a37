"""Conditions of the machine: a CPU from a fake /proc, a GPU from a fake NVML."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from losscli.bench import conditions
from losscli.bench.conditions import Conditions, CpuConditions, GpuConditions, look_at
from losscli.machine import kernel_files
from losscli.machine.own_processes import own_seconds
from losscli.runs.judgements import is_busy


class Nvml(SimpleNamespace):
    """A fake GPU whose readings a test sets; None is an error."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self):
        super().__init__(sm=1980, memory=2619, celsius=40, milliwatts=300_000, reasons=0)

    def answer(self, value):
        if value is None:
            raise self.NVMLError("Not Supported")
        return value

    def nvmlDeviceGetClockInfo(self, handle, which):  # noqa: N802
        return self.answer(self.sm if which == self.NVML_CLOCK_SM else self.memory)

    def nvmlDeviceGetTemperature(self, handle, sensor):  # noqa: N802
        return self.answer(self.celsius)

    def nvmlDeviceGetPowerUsage(self, handle):  # noqa: N802
        return self.answer(self.milliwatts)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return self.answer(self.reasons)

    running: Any = None
    """Processes that use the GPU, each with its part of the time in percent; None if unknown."""

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.answer(self.running)]

    def nvmlDeviceGetProcessUtilization(self, handle, since):  # noqa: N802
        assert since > 1e15  # microseconds since 1970
        used = [SimpleNamespace(pid=p, smUtil=u) for p, u in self.running.items() if u]
        return self.answer(used or None)


@pytest.fixture
def nvml():
    return Nvml()


def test_gpu_conditions_are_ranges_in_si_units(nvml):
    seen = GpuConditions(nvml, "handle")
    nvml.sm, nvml.celsius, nvml.milliwatts = 1500, 55, 650_000
    assert not seen.slowed()
    assert seen.record() == {
        "sm_clock_hz": [1500e6, 1980e6],
        "memory_clock_hz": [2619e6, 2619e6],
        "celsius": [40, 55],
        "watts": [300.0, 650.0],
        "throttle_reasons": [],
    }


def test_the_time_of_processes_that_it_has_begun_is_its_own():
    before = own_seconds()
    work = "import time\nwhile time.process_time() < 0.4: pass"
    with subprocess.Popen(
        [sys.executable, "-c", f"{work}\ninput()"], stdin=subprocess.PIPE
    ) as ours:
        while own_seconds() - before < 0.3:  # as long as it runs
            time.sleep(0.01)
        ours.communicate(b"\n")
    assert own_seconds() - before >= 0.3  # and when it has ended


def test_gpu_time_of_other_programs_is_read_for_each_case(nvml):
    own = os.getpid()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as ours:
        nvml.running = {own: 60, ours.pid: 30, 1: 25}
        seen = GpuConditions(nvml, "handle")
        assert seen.record()["others"] == 0.25
        assert is_busy(seen.record())
        seen.begin()
        nvml.running = {own: 60, ours.pid: 30, 1: 0}
        assert seen.record()["others"] == 0
        nvml.running = {1: 90}  # the numbers are not those that this process sees
        assert "others" not in seen.record()
        ours.communicate(b"\n")


def test_batch_is_throttled_if_the_gpu_was_at_either_end(nvml):
    for reason, name in conditions.THROTTLE_REASONS.items():
        nvml.reasons = 0
        seen = GpuConditions(nvml, "handle")
        looks = []
        for nvml.reasons in (0, reason, reason, 0, 0):
            looks.append(seen.slowed())
        assert looks == [False, True, True, True, False]
        assert seen.record()["throttle_reasons"] == [name]


def test_idle_clocks_and_power_limit_discard_no_batch(nvml):
    for reason in (0x01, 0x02, 0x04, 0x10, 0x100):
        nvml.reasons = reason
        seen = GpuConditions(nvml, "handle")
        assert not seen.slowed()
        told = {0x04: ["power limit"], 0x10: ["sync boost"]}.get(reason, [])
        assert seen.record()["throttle_reasons"] == told


def test_conditions_are_reset_for_each_case(nvml):
    nvml.reasons, nvml.celsius = 0x40, 90
    seen = GpuConditions(nvml, "handle")
    nvml.reasons, nvml.celsius = 0, 40
    seen.slowed()
    seen.begin()
    assert seen.record()["celsius"] == [40, 40]
    assert seen.record()["throttle_reasons"] == []


def test_conditions_leave_out_what_nvml_does_not_report(nvml):
    nvml.milliwatts = nvml.reasons = None
    seen = GpuConditions(nvml, "handle")
    assert not seen.slowed()
    assert "watts" not in seen.record()


def test_without_nvidia_ml_py_or_a_driver_conditions_are_unknown(monkeypatch, nvml):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    seen = look_at("cuda:0")
    seen.begin()
    assert not seen.slowed()
    assert seen.record() == {"unknown": "nvidia-ml-py is not installed"}
    nvml.nvmlInit = lambda: nvml.answer(None)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert look_at("cuda:0").record() == {"unknown": "NVML: Not Supported"}
    assert type(look_at("cuda:0")) is Conditions


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    """Two cores of ours and one that is not; `wall`, `own` and the ticks of each are set."""
    monkeypatch.setattr(kernel_files, "PROC", tmp_path)
    monkeypatch.setattr(kernel_files, "SYS", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    monkeypatch.setattr("os.getloadavg", lambda: (1.5, 0.0, 0.0))
    now = SimpleNamespace(wall=0.0, own=0.0)

    def tick(*busy):
        """Write how many seconds each core was busy: half of it as user, a tenth stolen."""
        lines = ["cpu 1 2 3 4 5 6 7 8 9 10"]
        for number, seconds in enumerate(busy):
            user, stolen = round(50 * seconds), round(10 * seconds)
            system = round(100 * seconds) - user - stolen
            lines.append(f"cpu{number} {user} 0 {system} 999 99 0 0 {stolen} 0 0")
        (tmp_path / "stat").write_text("\n".join([*lines, "intr 5"]))

    now.tick = tick
    tick(10.0, 20.0, 30.0)
    now.seen = CpuConditions(clock=lambda: now.wall, own_time=lambda: now.own)
    return now


def test_time_of_other_programs_is_busy_time_less_our_own(cpu):
    for cpu.wall, cpu.own, busy, others in (
        (2.0, 1.5, (11.5, 21.0, 99.0), 0.25),  # 2.5 s of the 4 s that two cores have
        (2.0, 3.9, (11.9, 21.9, 30.0), 0.0),
        (0.04, 0.0, (10.5, 20.5, 30.0), None),  # shorter than a tick of the kernel
    ):
        cpu.tick(*busy)
        record = cpu.seen.record()
        assert (record["others"], record["load_average"]) == (others, 1.5)
        assert record["threads"] >= 1
        assert record["governor"] is None


def test_machine_without_cpu_counters_is_unknown_but_for_its_governor(cpu, tmp_path):
    cpu.wall = 2.0
    (tmp_path / "stat").unlink()
    path = tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_governor"
    path.parent.mkdir(parents=True)
    path.write_text("powersave\n")
    record = cpu.seen.record()
    assert (record["others"], record["governor"]) == (None, "powersave")
