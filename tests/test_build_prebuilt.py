"""Which library of a wheel is used: by torch, CPU, GPU and glibc, and never a damaged one."""

import json
from dataclasses import replace

import pytest

from losscli.build import builder as build_module
from losscli.build import prebuilt as prebuilt_module
from losscli.build.cache import describe
from losscli.build.compilers import Compilers
from losscli.build.plan import TorchInstall, make_plan
from losscli.build.prebuilt import Prebuilt, cpu_levels, read, torch_variant, wheel_libraries
from losscli.build.toolchain import Tool
from losscli.errors import UnfitError
from losscli.machine import kernel_files
from tests.standin import ALPHA, ALPHA_CUDA, BETA, BINDING, GCC_VERSION, NVCC_VERSION

V2, V3, V4 = "x86-64-v2", "x86-64-v3", "x86-64-v4"
GENCODE = ("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=compute_90")


class Wheel:
    """An installed wheel with handmade libraries, and the machine that it is on."""

    def __init__(self, workshop, monkeypatch):
        self.workshop, self.folder, self.libraries = workshop, workshop.root / "prebuilt", {}
        self.folder.mkdir()
        self.torch = workshop.torch()
        self.capabilities = []
        self.levels = [V4, V3, V2]
        monkeypatch.setattr(prebuilt_module, "cpu_levels", lambda: self.levels)

    def add(self, target, variant, torch="2.13.0", **facts):
        plan = make_plan(target, self.workshop.csrc, self.workshop.torch(torch), variant)
        gencode = GENCODE if target == ALPHA_CUDA else ()
        tool = Tool(("c",), NVCC_VERSION, (13, 0), gencode=gencode)
        (self.folder / plan.library).write_text(variant)
        manifest = describe(plan.with_tool(tool), self.folder / plan.library)
        self.libraries[plan.library] = replace(manifest, **facts)
        self.written.write()

    @property
    def written(self):
        return Prebuilt(self.folder, self.libraries)

    def builder(self, force=False):
        compilers = Compilers(self.torch)
        compilers.capabilities = self.capabilities
        builder = self.workshop.builder(force=force)
        return replace(builder, compilers=compilers, prebuilt=read(self.folder))

    def chosen(self, target=ALPHA, **options):
        """Return the variant that is used, or how else the library was had."""
        (found,) = self.builder(**options).obtain([target])
        assert found.path.exists()
        assert (found.variant != "") == (found.status == "from the wheel")
        return found.variant or found.status


@pytest.fixture
def wheel(workshop, monkeypatch):
    monkeypatch.setenv("CXX", str(workshop.root / "g++"))
    monkeypatch.setenv("CUDACXX", str(workshop.root / "nvcc"))
    return Wheel(workshop, monkeypatch)


@pytest.fixture
def without_compilers(wheel, monkeypatch, tmp_path):
    for name in ("CXX", "CUDACXX"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("losscli.build.nvcc.USUAL_PLACE", tmp_path)


def test_best_level_that_the_cpu_runs_is_used(wheel):
    for level in (V2, V3, V4):
        wheel.add(ALPHA, level)
    for levels in ([V4, V3, V2], [V3, V2], [V2]):
        wheel.levels = levels
        assert wheel.chosen() == levels[0]
    wheel.levels = []
    assert wheel.chosen() == "built"


def test_order_is_built_here_then_the_wheel_then_a_build(wheel, workshop, monkeypatch):
    wheel.add(ALPHA, V3)
    assert (wheel.chosen(), wheel.chosen(BETA)) == (V3, "built")
    assert wheel.chosen(force=True) == "built"
    assert wheel.chosen() == "cached"
    # What another compiler built for this CPU is better than the wheel's, too.
    newer = GCC_VERSION.replace("12.2.0", "12.3.0")
    (workshop.root / "g++").write_text(f"#!/bin/sh\nprintf '%s\\n' '{newer}'\n")
    assert wheel.chosen() == "cached"


def test_losscli_build_ignores_the_wheel(wheel, workshop, monkeypatch):
    wheel.add(ALPHA, V3)
    monkeypatch.setattr(prebuilt_module, "FOLDER", wheel.folder)
    wheel_libraries.cache_clear()
    for name, value in {
        "installed_torch": wheel.torch,
        "csrc_root": workshop.csrc,
        "user_cache": workshop.cache,
    }.items():
        monkeypatch.setattr(build_module, name, lambda value=value: value)
    found = build_module.build("cpu", lambda device: [ALPHA], notify=workshop.notes.append)
    assert found[0].status == "built"
    wheel_libraries.cache_clear()


@pytest.mark.usefixtures("without_compilers")
def test_wheel_serves_a_machine_without_compilers_and_writes_nothing(wheel, workshop):
    wheel.add(ALPHA, V3)
    wheel.add(BINDING, "torch-2.13")
    for path in (wheel.folder, *wheel.folder.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in (wheel.folder, *wheel.folder.iterdir())}
    assert (wheel.chosen(), wheel.chosen(BINDING)) == (V3, "torch-2.13")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not workshop.cache.root.exists()
    with pytest.raises(UnfitError, match=r"no C\+\+ compiler"):
        wheel.chosen(BETA)


def test_two_versions_of_torch_each_get_their_own_binding(wheel):
    for version in ("2.12", "2.13"):
        wheel.add(BINDING, f"torch-{version}", f"{version}.0")
    for installed, variant in {
        "2.12.1": "torch-2.12",
        "2.13.0+cpu": "torch-2.13",
        "2.13.0+cu130": "torch-2.13",
        "2.14.0": "built",
        "2.13.0a0+gitb4e4ee8": "built",
        "2.13.0.dev20260301": "built",
    }.items():
        wheel.torch = replace(wheel.torch, version=installed)
        assert wheel.chosen(BINDING) == variant, installed


def test_binding_under_the_name_of_another_torch_is_not_used(wheel):
    wheel.add(BINDING, "torch-2.12", "2.12.0")
    (library,) = wheel.libraries
    other = library.replace("2.12", "2.13")
    (wheel.folder / library).rename(wheel.folder / other)
    wheel.libraries[other] = replace(wheel.libraries.pop(library), library=other)
    wheel.written.write()
    assert wheel.chosen(BINDING) == "built"


def test_cuda_libraries_fit_the_gpus_and_the_cuda_of_torch(wheel):
    wheel.add(ALPHA_CUDA, "cuda-13")
    for cuda, capabilities, chosen in (
        ("13.0", [(8, 0)], "cuda-13"),
        ("13.2", [(8, 6), (12, 0)], "cuda-13"),  # the last by PTX
        ("13.0", [(7, 5)], None),
        ("12.8", [(8, 0)], None),
    ):
        wheel.torch = TorchInstall("2.13.0", wheel.workshop.root / "torch", cuda, True)
        wheel.capabilities = capabilities
        builder = wheel.builder()
        builder.compilers.requirements = replace(builder.compilers.requirements, driver=(13, 0))
        plan = make_plan(ALPHA_CUDA, wheel.workshop.csrc, wheel.torch)
        found = builder._shipped(plan)
        assert (found and found.variant) == chosen, (cuda, capabilities)


def test_library_of_other_sources_is_not_used(wheel, workshop):
    wheel.add(ALPHA, V3)
    workshop.write("elementwise/cpu/engine.h", "edited")
    assert wheel.chosen() == "built"


def test_library_for_a_newer_glibc_is_not_used(wheel, monkeypatch):
    wheel.add(ALPHA, V4, glibc="2.34")
    wheel.add(ALPHA, V3, glibc="2.17")
    for version, level in (((2, 34), V4), ((2, 28), V3), ((0, 0), "built")):
        monkeypatch.setattr(prebuilt_module, "glibc", lambda version=version: version)
        assert wheel.chosen() == level


def test_damaged_library_is_named_once_and_passed_over(wheel, workshop):
    wheel.add(ALPHA, V4)
    wheel.add(ALPHA, V3)
    path = wheel.folder / f"liblosscli_alpha_cpu.{V4}.so"
    for damage, told in (
        (lambda: path.write_text("X86-64-v4"), "its content has changed since it was built"),
        (lambda: path.write_text("x86"), "3 of 9 bytes are present"),
        (path.unlink, "cannot be read: No such file"),
    ):
        damage()
        builder = wheel.builder()
        for _ in range(2):
            assert builder.obtain([ALPHA])[0].variant == V3
        (note,) = workshop.notes
        assert str(path) in note
        assert told in note
        assert "Reinstall losscli" in note
        workshop.notes.clear()


def test_manifest_that_cannot_be_read_is_named_and_the_wheel_is_not_used(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(prebuilt_module, "FOLDER", tmp_path)
    for text in ("{", json.dumps({"libraries": [{"library": "a"}]}), "[]", None):
        wheel_libraries.cache_clear()
        (tmp_path / "manifest.json").unlink(missing_ok=True)
        if text is not None:
            (tmp_path / "manifest.json").write_text(text)
        assert wheel_libraries() is None
        told = capsys.readouterr().err
        assert str(tmp_path / "manifest.json") in told
        assert "Reinstall losscli" in told
    wheel_libraries.cache_clear()
    monkeypatch.setattr(prebuilt_module, "FOLDER", tmp_path / "none")
    assert wheel_libraries() is None
    assert capsys.readouterr().err == ""
    wheel_libraries.cache_clear()


def test_flags_of_the_environment_are_for_builds_on_this_machine_alone(wheel, monkeypatch):
    wheel.add(ALPHA, V3)
    monkeypatch.setenv("CPATH", "/opt/include")
    assert wheel.chosen() == V3


def test_levels_of_a_cpu_follow_its_flags(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_files, "PROC", tmp_path)
    cpuinfo = tmp_path / "cpuinfo"
    v2 = "fpu sse2 cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2"
    v3 = f"{v2} avx avx2 bmi1 bmi2 f16c fma abm movbe"
    v4 = f"{v3} avx512f avx512bw avx512cd avx512dq avx512vl"
    for flags, levels in (
        (v4, [V4, V3, V2]),
        (v4.replace("avx512vl", ""), [V3, V2]),
        (v3.replace(" fma", ""), [V2]),
        (v3.replace("ssse3", ""), []),
    ):
        cpuinfo.write_text(f"vendor_id : A\nflags\t\t: {flags}\nbugs : spectre\n\nflags : {v4}\n")
        assert cpu_levels("x86_64") == levels
    cpuinfo.write_text("Features\t: fp asimd evtstrm\n")
    assert cpu_levels("aarch64") == ["armv8-a"]
    assert cpu_levels("riscv64") == []
    cpuinfo.unlink()
    assert cpu_levels("x86_64") == []


def test_variant_of_a_torch_is_its_release():
    assert torch_variant("2.13.1+cu130") == "torch-2.13"
    for other in ("2.13.0+rocm6.4", "2.13.0rc1", "2.13.0+git1234567", "2.13"):
        assert torch_variant(other) is None
