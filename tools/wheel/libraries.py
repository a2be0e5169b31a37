"""The libraries of a wheel: what is compiled, how, and into which folder."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from losscli.build.builder import Builder, BuildResult
from losscli.build.cache import Cache, describe
from losscli.build.compilers import Compilers
from losscli.build.nvcc import VARIABLE
from losscli.build.plan import (
    STEERING_VARIABLES,
    Plan,
    TorchInstall,
    csrc_root,
    make_plan,
    with_torch,
)
from losscli.build.prebuilt import LEVELS, Prebuilt, cuda_variant, torch_variant
from losscli.build.targets import BENCH, CPU, CUDA, TORCH, Target, production
from losscli.build.toolchain import Tool, as_numbers, dotted, find_compiler
from losscli.console.notes import note
from losscli.errors import BuildError, UnfitError, UsageError, first_line
from losscli.losses import LINEAR_LOSSES

TORCHES = ("2.10", "2.11", "2.12", "2.13", "2.14")
"""The supported versions. Where the wheel lacks one's binding, it is built on the machine."""
TRAINING = (
    *("mse", "l1", "smooth_l1", "huber", "hinge", "kl_div"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits", "sigmoid_focal"),
    *("policy", "kl_estimate"),
    *("cross_entropy", "token_log_probs", "kl_divergence", "reverse_kl_divergence"),
    *("js_divergence", "soft_cross_entropy", *LINEAR_LOSSES),
)
"""The losses of the wheel: what classifiers, detectors and language models are trained with, in
distillation and reinforcement learning too. Others are built when they are first called."""
ARCHITECTURES = "80;90"
"""GPUs that code is compiled for; newer ones translate the PTX of the last."""
COMPRESSES = (12, 8)
"""The first nvcc that packs code for GPUs as small as it can: a third of the size."""
OLDEST_GLIBC = "2.17"
"""The oldest version with a tag ``manylinux_2_X``."""


@dataclass(frozen=True)
class Kit:
    """What a wheel holds, and what it is compiled with."""

    work: Path
    torches: tuple[TorchInstall, ...]
    losses: tuple[str, ...]
    cuda_losses: tuple[str, ...]
    levels: tuple[str, ...]
    """CPU levels of all architectures."""
    left_out: list[str] = field(default_factory=list)
    """What is not built, and why."""

    def build(self, machine: str, folder: Path) -> Prebuilt | None:
        """Build an architecture's libraries into a folder; None without a compiler for it."""
        for name in STEERING_VARIABLES:
            os.environ.pop(name, None)
        try:
            compiler = find_compiler(_environ_for(machine))
        except UnfitError as error:
            self.left_out.append(f"{machine}: {error}")
            return None
        plans = [*self._kernels(machine, compiler)]
        if machine == platform.machine():
            plans += self._cuda_kernels()
        cache = Cache(self.work / machine)
        builder = Builder(Compilers(self.torches[0]), cache, csrc_root(), note, prebuilt=None)
        built = [*self._built_bindings(builder, machine, compiler)]
        built += zip(plans, builder.finish(plans), strict=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        libraries = {}
        for plan, outcome in built:
            assert outcome.path
            shutil.copyfile(outcome.path, folder / plan.library)
            facts = describe(plan, folder / plan.library)
            libraries[plan.library] = replace(facts, glibc=needed_glibc(folder / plan.library))
        prebuilt = Prebuilt(folder, libraries)
        prebuilt.write()
        return prebuilt

    def _built_bindings(
        self, builder: Builder, machine: str, compiler: Tool
    ) -> Iterator[tuple[Plan, BuildResult]]:
        for plan in self._bindings(machine, compiler):
            try:
                yield plan, builder.finish([plan])[0]
            except BuildError as error:
                self.left_out.append(f"the binding for {plan.variant}: {first_line(error)}")

    def _bindings(self, machine: str, compiler: Tool) -> Iterator[Plan]:
        stubs = self.work / machine / "stubs"
        _make_stubs(stubs, compiler)
        for torch in self.torches:
            plan = make_plan(Target(TORCH), csrc_root(), torch, torch_variant(torch.version) or "")
            tool = with_torch(compiler, torch)
            flags = (*tool.compile_flags, f"-ffile-prefix-map={torch.root}=torch")
            # Some linkers leave out libraries of which nothing is used, which empty ones are.
            link = ("-Xlinker", "--no-as-needed", "-L", str(stubs))
            yield plan.with_tool(replace(tool, compile_flags=flags, link_flags=link))

    def _kernels(self, machine: str, compiler: Tool) -> Iterator[Plan]:
        for level in (each for each in LEVELS[machine] if each in self.levels):
            for target in _kernels_of(self.losses, CPU):
                plan = make_plan(target, csrc_root(), self.torches[0], level)
                yield plan.with_tool(compiler)

    def _cuda_kernels(self) -> list[Plan]:
        if not self.cuda_losses:
            return []
        os.environ.setdefault(VARIABLE, ARCHITECTURES)
        compilers = Compilers(self.torches[0])
        compilers.capabilities = []
        try:
            variant = cuda_variant(dotted(compilers.nvcc.version)) or ""
            packed = ("--compress-mode=size",) if compilers.nvcc.version >= COMPRESSES else ()
            plans = []
            for target in _kernels_of(self.cuda_losses, CUDA):
                tool = compilers.tool(target)
                tool = replace(tool, compile_flags=(*tool.compile_flags, *packed))
                plan = make_plan(target, csrc_root(), self.torches[0], variant)
                plans.append(plan.with_tool(tool))
            return plans
        except UnfitError as error:
            self.left_out.append(f"CUDA: {error}")
            return []


def read_torch(path: Path, work: Path) -> TorchInstall:
    """Return a torch from its folder, or from its wheel, whose headers are unpacked."""
    if path.suffix == ".whl":
        folder = work / path.stem
        wanted = r"torch/(include/|version\.py$)|torch-[^/]*/licenses/LICENSE$"
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(folder, (n for n in wheel.namelist() if re.match(wanted, n)))
        path = folder / "torch"
    try:
        found = re.search(r"__version__ = '(.*)'", (path / "version.py").read_text())
    except OSError:
        found = None
    if not found or not (path / "include" / "c10").is_dir():
        raise UsageError(f"{path} has no torch with headers. Name its folder or its wheel.")
    if not torch_variant(found[1]):
        raise UsageError(f"torch {found[1]} in {path} is not a release: its ABI may differ.")
    return TorchInstall(found[1], path.resolve(), None, cxx11_abi=True)


def missing_torches(torches: Sequence[TorchInstall]) -> list[str]:
    """Return the supported versions of torch that are not given."""
    present = {torch_variant(torch.version) for torch in torches}
    return [version for version in TORCHES if f"torch-{version}" not in present]


def needed_glibc(library: Path) -> str:
    """Return the newest version of glibc whose symbols a library uses."""
    found = re.findall(rb"\0GLIBC_(\d+\.\d+)(?:\.\d+)?(?=\0)", library.read_bytes())
    return max((each.decode() for each in found), key=as_numbers, default=OLDEST_GLIBC)


def platform_tag(machine: str, prebuilt: Prebuilt) -> str:
    """Return ``manylinux_2_34_x86_64`` for the oldest glibc that all libraries load with."""
    needs = [OLDEST_GLIBC, *(each.glibc for each in prebuilt.libraries.values())]
    return f"manylinux_{max(needs, key=as_numbers).replace('.', '_')}_{machine}"


def _kernels_of(losses: Sequence[str], device: str) -> list[Target]:
    probe = Target(BENCH, device)
    return [target for target in (*production(losses, device), probe) if target.part != TORCH]


def _environ_for(machine: str) -> dict[str, str]:
    if machine == platform.machine():
        return dict(os.environ)
    return {**os.environ, "CXX": f"{machine}-linux-gnu-g++"}


def _make_stubs(folder: Path, compiler: Tool) -> None:
    """Make empty libraries with the names of torch's, which suffice to link."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libc10.so", "libtorch_cpu.so"):
        flags = ("-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", str(folder / name))
        subprocess.run([*compiler.command, "-x", "c++", os.devnull, *flags], check=True)
