import os
from functools import partial

import pytest

from losscli.build import builder as build_module
from losscli.build import compilers
from losscli.build.builder import build
from losscli.build.nvcc import Requirements
from losscli.build.plan import TorchInstall
from losscli.build.targets import production
from losscli.errors import UnfitError
from tests.standin import ALPHA, ALPHA_CUDA, BINDING, LOSSES, cut_short, write_program

CPU_LIBRARIES = ["torch", "alpha_cpu", "beta_cpu"]
CUDA_LIBRARIES = ["runtime_cuda", "alpha_cuda", "beta_cuda"]


@pytest.fixture(autouse=True)
def machine(workshop, monkeypatch):
    """Return a function that changes a machine with compilers, a torch with CUDA and a GPU."""
    monkeypatch.setenv("CXX", str(workshop.root / "g++"))
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(workshop.cache.root))
    monkeypatch.setattr(build_module, "csrc_root", lambda: workshop.csrc)

    def change(cuda="13.0", hip=None, gpus=((9, 0),), driver=(13, 0), nvcc="nvcc"):
        torch = TorchInstall("2.13.0", workshop.root, cuda, True, hip)
        monkeypatch.setattr(build_module, "installed_torch", lambda: torch)
        monkeypatch.setattr("losscli.build.nvcc.present_capabilities", lambda: list(gpus))
        monkeypatch.setattr(compilers, "driver_cuda", lambda: driver)
        monkeypatch.setenv("CUDACXX", str(workshop.root / nvcc))

    change()
    return change


@pytest.fixture
def libraries(workshop, machine, monkeypatch):
    """Return libraries that were built before the compilers were taken away."""
    found = [o.path for o in workshop.build([BINDING, ALPHA, ALPHA_CUDA])]
    monkeypatch.setenv("CXX", "nowhere")
    monkeypatch.setenv("CUDACXX", "nowhere")
    return found


def test_without_a_compiler_finished_libraries_are_used(workshop, libraries):
    outcomes = workshop.build([BINDING, ALPHA, ALPHA_CUDA])
    assert [o.path for o in outcomes] == libraries
    assert {o.status for o in outcomes} == {"cached"}
    assert "no program 'nowhere'" in outcomes[0].reason


def test_newest_finished_library_is_used(workshop, libraries, monkeypatch):
    other = workshop.root / "bin" / "g++"
    write_program(other, (workshop.root / "g++").read_text().replace("12.2.0", "13.1.0"))
    monkeypatch.setenv("CXX", str(other))
    (newer,) = workshop.build()
    assert newer.path not in libraries
    os.utime(newer.path, (3e9, 3e9))
    monkeypatch.setenv("CXX", "nowhere")
    assert workshop.build()[0].path == newer.path


@pytest.mark.parametrize("what", ["sources", "cpu", "damage", "force"])
def test_finished_library_of_other_sources_is_not_used(workshop, libraries, monkeypatch, what):
    if what == "sources":
        workshop.write("losses/elementwise/alpha.h", "edited")
    elif what == "cpu":
        monkeypatch.setattr("losscli.build.plan.instruction_set", lambda: "another")
    elif what == "damage":
        cut_short(libraries[1])
    with pytest.raises(UnfitError, match="no program 'nowhere'"):
        workshop.build(force=what == "force")


@pytest.mark.usefixtures("libraries")
def test_finished_operators_of_another_torch_are_not_used(workshop):
    builder = workshop.builder()
    builder.compilers.torch = workshop.torch("2.14.0")
    with pytest.raises(UnfitError):
        builder.obtain([BINDING])
    assert builder.obtain([ALPHA])[0].status == "cached", "kernels know nothing of torch"


@pytest.mark.usefixtures("libraries")
def test_finished_kernels_of_other_gpus_or_a_newer_cuda_are_not_used(workshop, monkeypatch):
    def obtain(capability, driver):
        monkeypatch.setattr("losscli.build.nvcc.present_capabilities", lambda: [capability])
        builder = workshop.builder()
        builder.compilers.requirements = Requirements(driver, (13, 0), capability)
        return builder.obtain([ALPHA_CUDA])

    assert obtain((9, 0), (13, 0))[0].status == "cached"
    for other in (((8, 0), (13, 0)), ((9, 0), (12, 8))):
        with pytest.raises(UnfitError, match="no program 'nowhere'"):
            obtain(*other)


def built(workshop, device):
    targets_of = partial(production, LOSSES)
    return build(device, targets_of, notify=workshop.notes.append)


def test_device_auto_builds_cpu_and_cuda_in_one_run_for_the_gpus_here(workshop, machine):
    machine(gpus=((10, 0),))
    outcomes = built(workshop, "auto")
    assert [o.target for o in outcomes] == CPU_LIBRARIES + CUDA_LIBRARIES
    assert {o.status for o in outcomes} == {"built"}
    assert "-gencode=arch=compute_100,code=sm_100" in outcomes[-1].log
    assert len(workshop.notes) == 1
    assert {o.status for o in built(workshop, "cuda")} == {"cached"}
    assert [o.target for o in built(workshop, "cpu")] == CPU_LIBRARIES


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cuda": None}, "torch 2.13.0 is built without CUDA"),
        ({"gpus": ()}, "torch sees no GPU"),
        ({"cuda": None, "hip": "6.2"}, "ROCm is not supported"),
        ({"nvcc": "nowhere"}, "no program '"),
    ],
)
def test_device_auto_skips_cuda_without_a_gpu_or_nvcc(workshop, machine, changes, reason):
    machine(**changes)
    *cpu, cuda = built(workshop, "auto")
    assert [o.target for o in cpu] == CPU_LIBRARIES
    assert (cuda.target, cuda.status, cuda.path) == ("cuda", "skipped", None)
    assert reason in cuda.reason
    assert not [name for name in workshop.compiled() if "cuda" in name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nvcc": "nowhere"}, "no program '.*nowhere'"),
        ({"cuda": None, "hip": "6.2"}, r"are CUDA C.*; ROCm is not supported"),
        ({"cuda": "12.8", "driver": (12, 4)}, r"is CUDA 13\.0, but the driver runs CUDA 12\.4"),
    ],
)
def test_device_cuda_fails_before_anything_is_built(workshop, machine, changes, message):
    machine(**changes)
    with pytest.raises(UnfitError, match=message):
        built(workshop, "cuda")
    assert workshop.compiled() == []


def test_device_cuda_compiles_without_a_torch_for_cuda(workshop, machine):
    for gpus in ((), ((9, 0),)):
        machine(cuda=None, gpus=gpus, driver=(12, 0))
        for _ in ("built", "cached"):
            outcomes = built(workshop, "cuda")[len(CPU_LIBRARIES) :]
            assert {o.status for o in outcomes} == {"compiled only"}
            assert {o.reason for o in outcomes} == {"torch 2.13.0 is built without CUDA"}


def test_unsupported_operating_system_names_an_alternative(monkeypatch):
    with pytest.raises(UnfitError, match=r"on Linux only, and this is macOS\. Use Linux"):
        compilers.require_platform("Darwin")
    monkeypatch.setattr("platform.system", lambda: "Windows")
    with pytest.raises(UnfitError, match=r"on Linux only, and this is Windows\. Use WSL 2"):
        build("cpu", lambda _: [], notify=print)
