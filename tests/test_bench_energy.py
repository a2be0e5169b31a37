import json
import time

import pytest

from losscli.bench import energy
from losscli.bench.energy import cpu_meter, gpu_meter, measure, of_a_call
from losscli.cli.main import run
from losscli.machine import kernel_files
from losscli.machine.devices import Nvml, UnreadableError
from losscli.runs.columns import COLUMNS
from tests.handmade import result


def counted(watts, period, call_seconds, batch=10, seconds=2.0):
    """Return the changes of a counter and the calls made, of a device at work."""
    changes = [(n * period, watts * n * period) for n in range(1, int(seconds / period))]
    length = batch * call_seconds
    return changes, [(n * length, n * batch) for n in range(int(seconds / length) + 1)]


def test_energy_is_that_of_the_calls_between_changes_of_the_counter():
    for call_seconds in (3e-4, 0.0123):
        for period in (0.02, 0.1):
            found = of_a_call(*counted(600.0, period, call_seconds))
            assert found.joules == pytest.approx(600.0 * call_seconds)
            assert found.watts == pytest.approx(600.0)
    # Changes before the first and after the last call do not count.
    changes, made = counted(600.0, 0.1, 1e-3)
    idle = [(-0.1, -1.0), *changes, (made[-1][0] + 0.1, changes[-1][1] + 1.0)]
    assert of_a_call(idle, made).joules == pytest.approx(0.6)


class Device:
    """A device whose counter rises by watts of real time, changing every period."""

    def __init__(self, watts: float, period: float) -> None:
        self.watts, self.period = watts, period

    def __call__(self) -> float:
        return self.watts * (time.perf_counter() // self.period * self.period)


def measured(device, call=lambda calls: time.sleep(0.01)):
    return measure("cuda:0", call, 1e-3, meter_of=lambda name: device)


def test_the_counter_is_read_while_calls_go_on(monkeypatch):
    monkeypatch.setattr(energy, "SECONDS", 0.3)
    found = measured(Device(300.0, 0.01), lambda calls: time.sleep(calls * 1e-3))
    assert found.reason == ""
    assert found.watts == pytest.approx(300.0, rel=0.1)
    assert found.joules is not None
    assert found.joules >= 0.27  # no call is shorter than a millisecond


def test_a_counter_that_hardly_changes_or_fails_is_told(monkeypatch):
    monkeypatch.setattr(energy, "SECONDS", 0.1)
    monkeypatch.setattr(energy, "LONGEST_SECONDS", 0.2)
    assert measured(Device(300.0, 1e9)) == (None, None, "the counter changed 0 times in 0 s")

    class Failing(Device):
        reads = 0

        def __call__(self):
            self.reads += 1
            if self.reads > 3:
                raise UnreadableError("gone")
            return super().__call__()

    assert measured(Failing(300.0, 0.01)) == (None, None, "gone")


def package(root, number, microjoules, most=2**32, name="package-0"):
    folder = root / f"class/powercap/intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(name)
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return folder / "energy_uj"


def test_a_cpus_packages_are_added_up_and_their_counters_begin_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_files, "SYS", tmp_path)
    first, second = package(tmp_path, 0, 2_000_000), package(tmp_path, 1, 3_000_000, 4_000_000)
    package(tmp_path, "0:0", 9_000_000, name="core")  # a part of a package
    package(tmp_path, 2, 9_000_000, name="psys")  # all of the machine
    meter = cpu_meter()
    assert meter() == 5.0
    first.write_text("2500000")
    second.write_text("500000")
    assert meter() == 2.5 + 4.5


def test_energy_that_cannot_be_read_has_a_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_files, "SYS", tmp_path)
    found = measure("cpu", lambda calls: None, 1e-3)
    assert found.reason == "this system has no RAPL counter (/sys/class/powercap)"
    package(tmp_path, 0, "nothing")
    assert "invalid literal" in measure("cpu", lambda calls: None, 1e-3).reason
    with pytest.raises(UnreadableError, match="NVML: Not Supported"):
        gpu_meter(Nvml(NoCounter(), None))()


class NoCounter:
    """NVML of a GPU that counts no energy."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802 - its name
        raise self.NVMLError("Not Supported")


def test_columns_of_energy_have_their_units():
    known = result(joules=0.0541, watts=612.3)
    assert [COLUMNS[name].cell(known) for name in ("energy", "power")] == ["54.1 mJ", "612"]
    assert COLUMNS["energy"].cell(result()) == "-"


def test_bench_measures_energy_where_a_column_asks_for_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(kernel_files, "SYS", tmp_path)
    arguments = ["bench", "--loss", "mse", "--size", "64x64", "--impl", "custom", "--device"]
    arguments += ["cpu", "--max-time", "0.01", "--processes", "1", "--pass", "forward"]
    assert run([*arguments, "--columns", "median,energy"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "energy not readable: this system has no RAPL counter" in out
    assert run([*arguments, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["no_energy"] == ""
