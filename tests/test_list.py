import ctypes
import json
import math
import re
from importlib import metadata
from types import SimpleNamespace

from losscli.cli import main
from losscli.cli.list import KINDS
from losscli.config.loader import shipped_configs
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS
from losscli.machine import devices

LISTED = {
    **LOSSES,
    **{name: spec for name, spec in ROW_FORMS.items() if not name.startswith("weighted_")},
    **LINEAR_LOSSES,
}


def listing(capsys, *arguments):
    assert main.run(["list", *arguments]) == 0
    return capsys.readouterr().out


def test_list_begins_a_line_with_each_name(capsys):
    for kind, names in (
        ("implementations", list(IMPLEMENTATIONS)),
        ("configs", [path.name for path in shipped_configs().values()]),
    ):
        lines = listing(capsys, kind).splitlines()
        assert [line.split()[0] for line in lines if line[0] != " "] == names
        assert all(len(line.split()) > 1 or line[0] == " " for line in lines)
        assert max(map(len, lines)) <= 100


def blocks(capsys):
    """The formula of each loss, and the lines below it as the words that two spaces part."""
    found = {}
    losses, _, symbols = listing(capsys, "losses").partition("\n\n")
    assert "C is the number of" in symbols
    for line in losses.splitlines():
        assert len(line) <= 98
        words = re.split("  +", line.strip())
        if not line.startswith(" "):
            name, _, formula = line.partition(": ")
            name = name.partition(", by ")[0]
            found[name] = [[formula]]
        elif line.startswith(" " * 5):  # of a line that did not fit
            found[name][-1][-1] += f" {words[0]}"
        else:
            found[name].append(words)
    return found


def test_list_of_losses_has_operands_and_parameters_with_their_domains(capsys):
    found = blocks(capsys)
    assert list(found) == list(LISTED)
    for spec, (formula, *lines) in zip(LISTED.values(), found.values(), strict=True):
        assert formula == [spec.formula]
        assert [line[0] for line in lines] == [*spec.names, *(p.name for p in spec.parameters)]
        for operand, (_, kind, domain, role) in zip(spec.operands, lines, strict=False):
            assert kind == ("operand, gradient" if operand.differentiable else "operand")
            assert (domain, role) == (operand.domain.name, operand.description)
        for parameter, (_, kind, domain, role) in zip(
            spec.parameters, lines[len(spec.operands) :], strict=True
        ):
            assert kind == f"parameter, default {parameter.default:g}"
            assert parameter.check(math.inf) == f"{parameter.name} must be {domain}, but is inf"
            assert role == parameter.description


def test_list_of_losses_in_json_has_the_same_as_data(capsys, golden):
    losses = json.loads(listing(capsys, "losses", "--format", "json"))["losses"]
    golden("hinge.json", json.dumps(losses["hinge"], indent=1) + "\n")


def test_list_says_which_losses_are_of_rows(capsys):
    lines = listing(capsys, "losses").splitlines()
    named = {line.partition(", by row: ")[0] for line in lines if ", by row: " in line}
    assert named == {name for name in ROW_FORMS if not name.startswith("weighted_")}
    assert {"cross_entropy", "kl_divergence", "masked_kl_divergence", "token_log_probs"} <= named
    losses = json.loads(listing(capsys, "losses", "--format", "json"))["losses"]
    assert {name for name, loss in losses.items() if loss["unit"] == "row"} == named


def test_list_without_a_kind_has_all_kinds(capsys):
    lines = listing(capsys).splitlines()
    assert [line for line in lines if line and line[0] != " "] == [f"{kind}:" for kind in KINDS]
    everything = json.loads(listing(capsys, "--format", "json"))
    assert list(everything) == list(KINDS)
    assert list(everything["losses"]) == list(LISTED)


def fake_driver(newest=0):
    """Return a libcuda with two GPUs."""
    models = (b"Model A", b"Model B")

    def put(place, value):
        place.value = value
        return 0

    return SimpleNamespace(
        cuInit=lambda flags: 0,
        cuDeviceGetCount=lambda count: put(count._obj, len(models)),
        cuDeviceGet=lambda device, index: put(device._obj, index),
        cuDeviceGetName=lambda name, length, device: put(name, models[device.value]),
        cuDeviceTotalMem_v2=lambda memory, device: put(memory._obj, (device.value + 1) * 2**30),
        cuDeviceGetUuid=lambda uuid, device: 1,
        cuDriverGetVersion=lambda version: put(version._obj, newest),
    )


def test_listed_gpus_come_from_the_driver(capsys, monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake_driver())
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cu130")
    lines = listing(capsys, "devices").splitlines()
    assert [line.split()[0] for line in lines] == ["cpu", "cuda:0", "cuda:1"]
    assert lines[2].endswith("Model B, 2.0 GiB")
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cpu")
    last = listing(capsys, "devices").splitlines()[-1]
    assert "out of reach, torch 2.13.0+cpu is built without CUDA" in last


def test_newest_cuda_version_of_the_driver_is_read(monkeypatch):
    for number, found in ((12040, (12, 4)), (13000, (13, 0)), (0, None)):
        monkeypatch.setattr(ctypes, "CDLL", lambda name, number=number: fake_driver(number))
        assert devices.driver_cuda() == found


def test_without_a_driver_only_the_cpu_is_listed(capsys, monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert [line.split()[0] for line in listing(capsys, "devices").splitlines()] == ["cpu"]
    assert devices.driver_cuda() is None
