"""Which libraries a device asks for, and which are used where there is no compiler."""

import os
from functools import partial

import pytest

from losscli.build import builder as build_module
from losscli.build import compilers
from losscli.build.builder import BuildResult, build
from losscli.build.nvcc import Requirements
from losscli.build.plan import TorchInstall
from losscli.build.targets import production
from losscli.errors import UnfitError
from tests.standin import ALPHA, ALPHA_CUDA, BINDING, LOSSES, Standin, cut_short, write_program


class TestWithoutCompiler:
    """A library built where there is a compiler is used where there is none."""

    @pytest.fixture(autouse=True)
    def _built_before(self, workshop, monkeypatch):
        monkeypatch.setenv("CXX", str(workshop.root / "g++"))
        monkeypatch.setenv("CUDACXX", str(workshop.root / "nvcc"))
        monkeypatch.setattr(compilers, "present_capabilities", lambda: [(9, 0)])
        self.libraries = [o.path for o in workshop.build([BINDING, ALPHA, ALPHA_CUDA])]
        monkeypatch.setenv("CXX", "nowhere")
        monkeypatch.setenv("CUDACXX", "nowhere")

    def test_without_a_compiler_finished_libraries_are_used(self, workshop):
        outcomes = workshop.build([BINDING, ALPHA, ALPHA_CUDA])
        assert [o.path for o in outcomes] == self.libraries
        assert {o.status for o in outcomes} == {"cached"}
        assert "no program 'nowhere'" in outcomes[0].reason

    def test_newest_finished_library_is_used(self, workshop, monkeypatch):
        other = workshop.root / "bin" / "g++"
        write_program(other, (workshop.root / "g++").read_text().replace("12.2.0", "13.1.0"))
        monkeypatch.setenv("CXX", str(other))
        (newer,) = workshop.build()
        assert newer.path
        assert newer.path not in self.libraries
        os.utime(newer.path, (3e9, 3e9))
        monkeypatch.setenv("CXX", "nowhere")
        assert workshop.build()[0].path == newer.path

    @pytest.mark.parametrize("what", ["sources", "cpu", "damage", "force"])
    def test_finished_library_of_other_sources_is_not_used(self, workshop, monkeypatch, what):
        if what == "sources":
            workshop.write("losses/elementwise/alpha.h", "edited")
        elif what == "cpu":
            monkeypatch.setattr("losscli.build.plan.instruction_set", lambda: "another")
        elif what == "damage":
            assert self.libraries[1]
            cut_short(self.libraries[1])
        with pytest.raises(UnfitError, match="no program 'nowhere'"):
            workshop.build(force=what == "force")

    def test_finished_operators_of_another_torch_are_not_used(self, workshop):
        builder = workshop.builder()
        builder.compilers.torch = workshop.torch("2.14.0")
        with pytest.raises(UnfitError):
            builder.obtain([BINDING])
        assert builder.obtain([ALPHA])[0].status == "cached", "kernels know nothing of torch"

    def test_finished_kernels_of_other_gpus_or_a_newer_cuda_are_not_used(
        self, workshop, monkeypatch
    ):
        def obtain(capability, driver):
            monkeypatch.setattr(compilers, "present_capabilities", lambda: [capability])
            builder = workshop.builder()
            builder.compilers.requirements = Requirements(driver, (13, 0), capability)
            return builder.obtain([ALPHA_CUDA])

        assert obtain((9, 0), (13, 0))[0].status == "cached"
        for other in (((8, 0), (13, 0)), ((9, 0), (12, 8))):
            with pytest.raises(UnfitError, match="no program 'nowhere'"):
                obtain(*other)


CPU_LIBRARIES = ["torch", "alpha_cpu", "beta_cpu"]
CUDA_LIBRARIES = ["runtime_cuda", "alpha_cuda", "beta_cuda"]


class TestTargets:
    """Which libraries a device asks for."""

    @pytest.fixture(autouse=True)
    def _machine(self, workshop, monkeypatch):
        monkeypatch.setenv("CXX", str(workshop.root / "g++"))
        monkeypatch.setenv("CUDACXX", str(workshop.root / "nvcc"))
        monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(workshop.cache.root))
        monkeypatch.setattr(build_module, "csrc_root", lambda: workshop.csrc)
        monkeypatch.setattr(compilers, "driver_cuda", lambda: (13, 0))
        self.machine_with(workshop, monkeypatch)

    def machine_with(
        self,
        workshop: Standin,
        monkeypatch: pytest.MonkeyPatch,
        *,
        cuda: str | None = "13.0",
        hip: str | None = None,
        gpus: tuple[tuple[int, int], ...] = ((9, 0),),
    ) -> None:
        torch = TorchInstall("2.13.0", workshop.root, cuda, True, hip)
        monkeypatch.setattr(build_module, "installed_torch", lambda: torch)
        monkeypatch.setattr(compilers, "present_capabilities", lambda: list(gpus))

    def build(self, workshop: Standin, device: str) -> list[BuildResult]:
        notify, progress = workshop.notes.append, workshop.steps.append
        targets_of = partial(production, LOSSES)
        return build(device, targets_of, notify=notify, progress=progress)

    def test_device_auto_builds_cpu_and_cuda_in_one_run(self, workshop):
        outcomes = self.build(workshop, "auto")
        assert [o.target for o in outcomes] == CPU_LIBRARIES + CUDA_LIBRARIES
        assert {o.status for o in outcomes} == {"built"}
        assert len(workshop.notes) == 1
        assert {o.status for o in self.build(workshop, "cuda")} == {"cached"}

    def test_device_cpu_builds_only_the_cpu(self, workshop):
        assert [o.target for o in self.build(workshop, "cpu")] == CPU_LIBRARIES

    @pytest.mark.parametrize(
        ("machine", "reason"),
        [
            ({"cuda": None}, "torch 2.13.0 is built without CUDA"),
            ({"gpus": ()}, "torch sees no GPU"),
            ({"cuda": None, "hip": "6.2"}, "ROCm is not supported"),
            ({"nvcc": "nowhere"}, "no program 'nowhere'"),
        ],
    )
    def test_device_auto_skips_cuda_without_a_gpu_or_nvcc(
        self, workshop, monkeypatch, machine, reason
    ):
        monkeypatch.setenv("CUDACXX", machine.pop("nvcc", str(workshop.root / "nvcc")))
        self.machine_with(workshop, monkeypatch, **machine)
        *cpu, cuda = self.build(workshop, "auto")
        assert [o.target for o in cpu] == CPU_LIBRARIES
        assert (cuda.target, cuda.status, cuda.path) == ("cuda", "skipped", None)
        assert reason in cuda.reason
        assert not [name for name in workshop.compiled() if "cuda" in name]

    @pytest.mark.parametrize(
        ("nvcc", "driver", "machine", "message"),
        [
            ("nowhere", (13, 0), {}, "no program 'nowhere'"),
            ("nvcc", (13, 0), {"cuda": None, "hip": "6.2"}, r"are CUDA C.*; ROCm is not supported"),
            ("nvcc", (12, 4), {"cuda": "12.8"}, r"is CUDA 13\.0, but the driver runs CUDA 12\.4"),
        ],
    )
    def test_device_cuda_that_cannot_be_built_for_fails_before_anything_is_built(
        self, workshop, monkeypatch, nvcc, driver, machine, message
    ):
        monkeypatch.setenv("CUDACXX", str(workshop.root / nvcc) if nvcc == "nvcc" else nvcc)
        self.machine_with(workshop, monkeypatch, **machine)
        monkeypatch.setattr(compilers, "driver_cuda", lambda: driver)
        with pytest.raises(UnfitError, match=message):
            self.build(workshop, "cuda")
        assert workshop.compiled() == []

    @pytest.mark.parametrize("gpus", [(), ((9, 0),)])
    def test_device_cuda_compiles_without_a_torch_for_cuda(self, workshop, monkeypatch, gpus):
        self.machine_with(workshop, monkeypatch, cuda=None, gpus=gpus)
        monkeypatch.setattr(compilers, "driver_cuda", lambda: (12, 0))
        for _ in ("built", "cached"):
            outcomes = self.build(workshop, "cuda")[len(CPU_LIBRARIES) :]
            assert {o.status for o in outcomes} == {"compiled only"}
            assert {o.reason for o in outcomes} == {"torch 2.13.0 is built without CUDA"}

    def test_kernels_are_compiled_for_the_gpus_here(self, workshop, monkeypatch):
        self.machine_with(workshop, monkeypatch, gpus=((10, 0),))
        *_, cuda = self.build(workshop, "auto")
        assert "-gencode=arch=compute_100,code=sm_100" in cuda.log


def test_unsupported_operating_system_names_an_alternative(monkeypatch):
    with pytest.raises(UnfitError, match=r"on Linux only, and this is macOS\. Use Linux"):
        compilers.require_platform("Darwin")
    monkeypatch.setattr("platform.system", lambda: "Windows")
    with pytest.raises(UnfitError, match=r"on Linux only, and this is Windows\. Use WSL 2"):
        build("cpu", lambda _: [], notify=print, progress=print)
