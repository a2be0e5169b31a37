"""The compile commands of a library, for a folder with a copy of its sources."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Self

from losscli.cases.case import ITEM_BYTES
from losscli.errors import UnfitError
from losscli.files.reading import shipped
from losscli.losses.elementwise.weighting import inner_name, is_weighted
from losscli.machine.kernel_files import first_core
from losscli.machine.pytorch import torch

from .targets import CPU, CUDA, LOSS, STRATEGIES, TORCH, Sources, Target, is_unit, read_sources
from .toolchain import Tool

STEERING_VARIABLES = (
    *("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"),
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
)
"""Environment variables that pass hidden flags to compilers."""

_COMMON = ("-std=c++17", "-fPIC", "-fvisibility=hidden")
# Loops must be bitwise deterministic, so nothing is contracted to fma. The others let the compiler
# vectorise comparisons and square roots without changing a result.
_CPU_FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_NATIVE_FLAG = {"x86_64": ("-march=native",), "aarch64": ("-mcpu=native",)}
_CUDA_FLAGS = (
    *("-O3", "-std=c++17", "-fmad=false"),
    *("-Xcompiler", "-fPIC", "-Xcompiler", "-fvisibility=hidden", "-Xptxas", "-v"),
)
# OpenMP calls use the libgomp that PyTorch has loaded; another would bring a second thread pool.
# -O1 compiles 5 s faster than -O2, and a call takes as long; the compiler's garbage collection
# would take another second.
_TORCH_FLAGS = ("-O1", "-DNDEBUG", "-fopenmp", *("--param", "ggc-min-heapsize=4000000"))
# Some compilers link libstdc++ statically. Sharing half of it with PyTorch's would crash when a
# number is printed, so none of it is exported.
_PRIVATE = ("-Xlinker", "--exclude-libs=libstdc++.a")
_STRIPPED = ("-Xlinker", "-s")
"""For a variant: without its symbol table, which also holds names of temporary files of nvcc."""


@dataclass(frozen=True)
class Step:
    """One command of a build."""

    output: str
    inputs: tuple[str, ...]
    flags: tuple[str, ...]
    description: str
    depfile: str = ""
    """The file in which the compiler lists headers; empty for a link."""
    libraries: tuple[str, ...] = ()

    def command(self, tool: Tool, folder: str) -> tuple[str, ...]:
        """Return the words to run in the parent of ``folder``."""
        inputs = tuple(f"{folder}/{name}" for name in self.inputs)
        output = f"{folder}/{self.output}"
        if not self.depfile:
            link = (*tool.command, "-shared", *self.flags)
            return (*link, "-o", output, *inputs, *tool.link_flags, *self.libraries)
        flags = (*self.flags, *tool.compile_flags, f"-I{folder}/csrc")
        if not tool.gencode:
            # Messages with a file's name do not depend on the folder of a build.
            flags = (*flags, f"-ffile-prefix-map={folder}/=")
        files = ("-MMD", "-MF", f"{folder}/{self.depfile}", "-c", *inputs, "-o", output)
        return (*tool.command, *flags, *files)


@dataclass(frozen=True)
class Plan:
    """Everything that makes one library."""

    target: Target
    steps: tuple[Step, ...]
    """Compilations, then the link."""
    sources: Sources
    ingredients: Mapping[str, str]
    """Other facts that determine the library, besides the compiler: PyTorch's version, the CPU."""
    tool: Tool | None = None
    """None until a compiler is found."""
    variant: str = ""
    """The machines that the library is for, such as ``x86-64-v3``; empty for this machine."""

    @property
    def name(self) -> str:
        """``mse_cpu``, or of a variant ``mse_cpu.x86-64-v3``."""
        return ".".join(filter(None, (self.target.name, self.variant)))

    @property
    def library(self) -> str:
        """File name of the library."""
        return f"liblosscli_{self.name}.so"

    def with_tool(self, tool: Tool) -> Self:
        """Return the plan with a compiler."""
        return replace(self, tool=tool)

    def commands(self, folder: str) -> list[tuple[Step, tuple[str, ...]]]:
        """Return each step and its command."""
        assert self.tool, f"no compiler for {self.target.name}"
        return [(step, step.command(self.tool, folder)) for step in self.steps]


@dataclass(frozen=True)
class TorchInstall:
    """A PyTorch installation, with the CUDA or ROCm that it was built with."""

    version: str
    root: Path
    cuda: str | None
    cxx11_abi: bool
    hip: str | None = None


def installed_torch() -> TorchInstall:
    """Describe the PyTorch of this process."""
    root = Path(torch.__file__).parent
    abi = torch.compiled_with_cxx11_abi()
    return TorchInstall(torch.__version__, root, torch.version.cuda, abi, torch.version.hip)


def csrc_root() -> Path:
    """Return the folder of the sources; UnfitError if there is none."""
    return shipped("the C++ sources", "csrc")


def make_plan(target: Target, csrc: Path, torch: TorchInstall, variant: str = "") -> Plan:
    """Plan a library without a compiler; UnfitError if there are no sources."""
    sources = read_sources(csrc, target)
    flags = _flags(target, torch, variant)
    units = [source for source in sources if is_unit(source)]
    if target.device == CPU:
        # All files at once, because headers dominate: PyTorch's are nine tenths (72 s of processor
        # time one by one, 34 in three groups, 15 in one), a loss's a fifth.
        steps = [_compile(target, flags, *units)] if units else []
    else:
        # A file NAME.dtype.cu is compiled for each dtype by itself.
        steps = [
            _compile(target, flags, source, dtype=dtype)
            for source in units
            for dtype in (ITEM_BYTES if PurePosixPath(source).suffixes[:-1] == [".dtype"] else [""])
        ]
    if not steps:
        raise UnfitError(
            f"the C++ sources of {target.name} are missing from {csrc / target.unit_folder}. "
            "Reinstall losscli."
        )
    if target.part == TORCH:
        ingredients = {"torch": variant or torch.version}
    else:
        ingredients = {"cpu": variant or instruction_set()} if target.device == CPU else {}
    if not variant:
        ingredients |= {name: os.environ[name] for name in STEERING_VARIABLES if name in os.environ}
    plan = Plan(target, (), sources, ingredients, None, variant)
    link_flags = ("-cudart", "static") if target.device == CUDA else ()
    libraries = ("-lc10", "-ltorch_cpu") if target.part == TORCH else ()
    link = Step(
        plan.library,
        tuple(step.output for step in steps),
        (*link_flags, *(_STRIPPED if variant else ())),
        f"linking {plan.library}",
        libraries=(*libraries, *_PRIVATE),
    )
    return replace(plan, steps=(*steps, link))


def with_torch(compiler: Tool, torch: TorchInstall) -> Tool:
    """Add PyTorch's headers and libraries to a C++ compiler."""
    include = torch.root / "include"
    api = include / "torch" / "csrc" / "api" / "include"
    return replace(
        compiler,
        compile_flags=("-isystem", str(include), "-isystem", str(api)),
        link_flags=("-L", str(torch.root / "lib")),
    )


def instruction_set() -> str:
    """Return what identifies a CPU's instruction set."""
    telling = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part")
    lines = [line for line in first_core() if line.startswith(telling)]
    return "\n".join(lines) or platform.processor()


def _flags(target: Target, torch: TorchInstall, variant: str) -> tuple[str, ...]:
    if target.part == TORCH:
        return (*_COMMON, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}", *_TORCH_FLAGS)
    cpu = (f"-march={variant}",) if variant else _NATIVE_FLAG.get(platform.machine(), ())
    flags = _CUDA_FLAGS if target.device == CUDA else (*_COMMON, *_CPU_FLAGS, *cpu)
    if target.part not in (LOSS, STRATEGIES):
        return flags
    header = f'"{target.loss_header}"'
    defined = {"LOSS": target.loss, "LOSS_HEADER": header}
    if is_weighted(target.loss):
        defined["LOSS_HEADER"] = '"losses/elementwise/weighted.h"'
        defined |= {"WEIGHTED": inner_name(target.loss), "WEIGHTED_HEADER": header}
    flags = (*flags, *(f"-DLOSSCLI_{name}={value}" for name, value in defined.items()))
    return (*flags, "-DLOSSCLI_STRATEGIES") if target.part == STRATEGIES else flags


def _compile(
    target: Target, flags: tuple[str, ...], source: str, *along: str, dtype: str = ""
) -> Step:
    path = PurePosixPath(source)
    stem = path.name.removesuffix(path.suffix).removesuffix(".dtype")
    output = ".".join((*path.parts[:-1], stem, *([dtype] if dtype else []), "o"))
    if dtype:
        flags = (*flags, f"-DLOSSCLI_DTYPE={dtype}")
    for other in along:
        flags = (*flags, "-include", other)
    subject = target.loss or ("" if target.part == TORCH else target.device)
    what = f" for {' '.join(word for word in (subject, dtype) if word)}" if subject else ""
    if target.part == STRATEGIES:
        what += " with strategies"
    if along:
        what += f" and {len(along)} more file{'s' * (len(along) > 1)}"
    return Step(output, (f"csrc/{source}",), flags, f"compiling csrc/{source}{what}", f"{output}.d")
