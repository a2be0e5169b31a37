"""What to compile and how: from csrc and a toolchain to a list of commands, nothing run yet.

Commands run in a folder that holds a copy of csrc, so they name sources by ``csrc/...`` and objects
by bare names, and are the same wherever that folder lies.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from losscli.cases import ITEM_BYTES
from losscli.errors import UnfitError

from .toolchain import Tool

Sources = Mapping[str, bytes]
"""Path under csrc, and what the file holds."""

CPU, CUDA = "cpu", "cuda"
LIBRARIES = {CPU: "liblosscli.so", CUDA: "liblosscli_cuda.so"}

_ONLY_FOR = {"binding": CPU, "cpu": CPU, "cuda": CUDA}
"""Folders of csrc that one target alone reads; the rest is shared."""
_SUFFIXES = {".h", ".cuh", ".cpp", ".cu"}
_STEERING_VARIABLES = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
)
"""Environment variables by which compilers take flags that no command shows."""

# The loops must give the same bits whatever the compiler finds clever: no contraction to fma. The
# other two let it vectorise comparisons and square roots without changing a result.
_CPU_FLAGS = ("-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_NATIVE_FLAG = {"x86_64": ("-march=native",), "aarch64": ("-mcpu=native",)}
_CUDA_FLAGS = ("-O3", "-std=c++17", "-fmad=false", "-Xcompiler", "-fPIC", "-Xptxas", "-v")
# Some compilers put a static C++ library into what they link. Half of it would be shared with the
# one PyTorch has loaded, and printing a number then crashes: all of it is to stay our own.
_PRIVATE = ("-Xlinker", "--exclude-libs=libstdc++.a")


@dataclass(frozen=True)
class Edge:
    """One command of a build: what it reads, what it writes, what to call it."""

    output: str
    inputs: tuple[str, ...]
    command: tuple[str, ...]
    description: str
    depfile: str = ""
    """Where the compiler lists the headers it read; empty for a link."""


@dataclass(frozen=True)
class Plan:
    """Everything that makes one library."""

    target: str
    """``cpu`` (with the binding) or ``cuda``."""
    edges: tuple[Edge, ...]
    """Compilations, the slowest first, then the link."""
    sources: Sources
    ingredients: Mapping[str, str]
    """What else decides the outcome: the compilers' versions, PyTorch's, the CPU."""

    @property
    def library(self) -> str:
        """File name of the library."""
        return LIBRARIES[self.target]


@dataclass(frozen=True)
class TorchInstall:
    """The PyTorch that the binding is compiled against."""

    version: str
    root: Path
    cuda: str | None
    """Version of CUDA it was built with."""
    cxx11_abi: bool


def installed_torch() -> TorchInstall:
    """Describe the PyTorch of this process."""
    import torch

    root = Path(torch.__file__).parent
    return TorchInstall(
        torch.__version__, root, torch.version.cuda, torch.compiled_with_cxx11_abi()
    )


def csrc_root() -> Path:
    """Return the folder of the C++ sources: inside an installed package, beside it in a checkout.

    Raises:
        UnfitError: neither is there.
    """
    package = Path(__file__).parents[1]
    for root in (package / "csrc", package.parent / "csrc"):
        if (root / "losses.h").is_file():
            return root
    raise UnfitError(f"the C++ sources are missing from {package / 'csrc'}. Reinstall losscli.")


def read_sources(csrc: Path, target: str) -> Sources:
    """Read every file of csrc that a target may include, by path."""
    sources = {}
    for path in sorted(csrc.rglob("*")):
        name = path.relative_to(csrc).as_posix()
        if path.suffix in _SUFFIXES and _ONLY_FOR.get(name.partition("/")[0], target) == target:
            sources[name] = path.read_bytes()
    return sources


def loss_names(sources: Sources) -> list[str]:
    """Return the names in csrc's list of losses: the ``X(name)`` lines of losses.h."""
    code = re.sub(r"//.*", "", sources["losses.h"].decode())
    return re.findall(r"\bX\((\w+)\)", code)


def cpu_plan(csrc: Path, compiler: Tool, torch: TorchInstall) -> Plan:
    """Plan the library of the binding and the CPU kernels."""
    sources = read_sources(csrc, CPU)
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}"
    common = ("-std=c++17", "-fPIC", abi, "-Icsrc")
    native = _NATIVE_FLAG.get(platform.machine(), ())
    include = torch.root / "include"
    # OpenMP's calls are compiled in, and libgomp is not linked: they are found in the one that
    # PyTorch has loaded. A second runtime would bring a second pool of threads.
    binding_flags = (
        "-O2",
        "-DNDEBUG",
        "-fopenmp",
        "-isystem",
        str(include),
        "-isystem",
        str(include / "torch" / "csrc" / "api" / "include"),
    )
    edges = []
    for source in sorted(sources, key=lambda name: (not name.startswith("binding/"), name)):
        if not source.endswith(".cpp"):
            continue
        flags = binding_flags if source.startswith("binding/") else (*_CPU_FLAGS, *native)
        for variant in _variants(source, sources):
            edges.append(_compile(compiler.command, (*common, *flags), source, variant))
    libraries = ("-L", str(torch.root / "lib"), "-lc10", "-ltorch_cpu", *_PRIVATE)
    edges.append(_link((*compiler.command, "-shared"), edges, CPU, libraries))
    ingredients = {
        "compiler": compiler.identity,
        "torch": torch.version,
        "cpu": instruction_set(),
        **_steering(),
    }
    return Plan(CPU, tuple(edges), sources, ingredients)


def cuda_plan(csrc: Path, nvcc: Tool, host_compiler: str, gencode: tuple[str, ...]) -> Plan:
    """Plan the library of the CUDA kernels, which needs nothing of PyTorch."""
    sources = read_sources(csrc, CUDA)
    host = ("-ccbin", host_compiler)
    edges = []
    for source in sources:
        if source.endswith(".cu"):
            for variant in _variants(source, sources):
                flags = (*_CUDA_FLAGS, *host, "-Icsrc", *gencode)
                edges.append(_compile(nvcc.command, flags, source, variant))
    # The binding is loaded with global symbols; the kernels are to call their own functions, not
    # the CPU library's of the same name.
    link = (*nvcc.command, "-shared", "-cudart", "static", *host, *gencode)
    edges.append(_link((*link, "-Xlinker", "-Bsymbolic", *_PRIVATE), edges, CUDA))
    return Plan(CUDA, tuple(edges), sources, {"nvcc": nvcc.identity, **_steering()})


def instruction_set(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return what tells one CPU's instruction set from another's."""
    telling = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part")
    try:
        with cpuinfo.open() as file:
            # The first block only: the kernel writes the others as they are read, core by core.
            lines = [line.strip() for line in iter(file.readline, "\n") if line.startswith(telling)]
    except OSError:
        return platform.processor()
    return "\n".join(lines)


def _variants(source: str, sources: Sources) -> list[dict[str, str]]:
    """Return the macros of each compilation of a file; instantiate.* is compiled once a loss."""
    if PurePosixPath(source).stem != "instantiate":
        return [{}]
    losses = loss_names(sources)
    if source.endswith(".cu"):
        return [
            {"LOSSCLI_LOSS": loss, "LOSSCLI_DTYPE": dtype}
            for loss in losses
            for dtype in ITEM_BYTES
        ]
    return [{"LOSSCLI_LOSS": loss} for loss in losses]


def _compile(
    compiler: tuple[str, ...], flags: tuple[str, ...], source: str, variant: Mapping[str, str]
) -> Edge:
    path = PurePosixPath(source)
    output = ".".join((*path.with_suffix("").parts, *variant.values(), "o"))
    defines = tuple(f"-D{name}={value}" for name, value in variant.items())
    depfile = f"{output}.d"
    what = f" for {' '.join(variant.values())}" if variant else ""
    files = ("-MMD", "-MF", depfile, "-c", f"csrc/{source}", "-o", output)
    command = (*compiler, *flags, *defines, *files)
    return Edge(output, (f"csrc/{source}",), command, f"compiling csrc/{source}{what}", depfile)


def _link(
    command: tuple[str, ...], edges: list[Edge], target: str, libraries: tuple[str, ...] = ()
) -> Edge:
    objects = tuple(edge.output for edge in edges)
    library = LIBRARIES[target]
    full = (*command, "-o", library, *objects, *libraries)
    return Edge(library, objects, full, f"linking {library}")


def _steering() -> dict[str, str]:
    return {name: os.environ[name] for name in _STEERING_VARIABLES if name in os.environ}
