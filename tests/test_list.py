"""`losscli list` shows the registries."""

import ctypes
import json
from importlib import metadata

import pytest

from losscli.cli import main
from losscli.config.loader import shipped_configs
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import LOSSES
from losscli.machine import devices


def listing(capsys, *arguments):
    assert main.run(["list", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("losses", list(LOSSES)),
        ("implementations", list(IMPLEMENTATIONS)),
        ("configs", [path.name for path in shipped_configs().values()]),
    ],
)
def test_list_has_one_line_per_entry(capsys, kind, names):
    lines = listing(capsys, kind).splitlines()
    assert [line.split()[0] for line in lines] == names
    assert all(len(line.split()) > 1 and len(line) <= 100 for line in lines)


def test_list_of_losses_has_formula_and_defaults(capsys):
    lines = listing(capsys, "losses").splitlines()
    for line, spec in zip(lines, LOSSES.values(), strict=True):
        assert spec.formula in line
        assert all(f"; {p.name} = {p.default:g}" in line for p in spec.parameters)


def test_list_without_a_kind_has_all_kinds(capsys):
    lines = listing(capsys).splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == ["losses:", "implementations:", "devices:", "configs:"]


def test_list_in_json_has_all_kinds(capsys):
    everything = json.loads(listing(capsys, "--format", "json"))
    assert list(everything) == ["losses", "implementations", "devices", "configs"]
    assert list(everything["losses"]) == list(LOSSES)


class FakeDriver:
    """libcuda with two GPUs."""

    models = (b"Model A", b"Model B")

    def cuInit(self, flags):  # noqa: N802
        return 0

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = len(self.models)
        return 0

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = index

    def cuDeviceGetName(self, name, length, device):  # noqa: N802
        name.value = self.models[device.value]

    def cuDeviceTotalMem_v2(self, memory, device):  # noqa: N802
        memory._obj.value = (device.value + 1) * 2**30


def test_listed_gpus_come_from_the_driver(capsys, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver())
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cu130")
    lines = listing(capsys, "devices").splitlines()
    assert [line.split()[0] for line in lines] == ["cpu", "cuda:0", "cuda:1"]
    assert lines[2].endswith("Model B, 2.0 GiB")


def test_listed_gpu_that_torch_cannot_use_says_so(capsys, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver())
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cpu")
    last = listing(capsys, "devices").splitlines()[-1]
    assert "out of reach, torch 2.13.0+cpu is built without CUDA" in last


def test_without_a_driver_only_the_cpu_is_listed(capsys, monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert [line.split()[0] for line in listing(capsys, "devices").splitlines()] == ["cpu"]


@pytest.mark.parametrize(("number", "found"), [(12040, (12, 4)), (13000, (13, 0)), (0, None)])
def test_newest_cuda_version_of_the_driver_is_read(monkeypatch, number, found):
    class Driver:
        def cuDriverGetVersion(self, version):  # noqa: N802
            version._obj.value = number
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert devices.driver_cuda() == found


def test_without_a_driver_its_cuda_version_is_unknown(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert devices.driver_cuda() is None
