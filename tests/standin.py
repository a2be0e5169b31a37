"""A stand-in csrc and stand-in compilers: shell scripts that finish in milliseconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from losscli.build.builder import Builder, BuildResult
from losscli.build.cache import Cache
from losscli.build.compilers import Compilers
from losscli.build.plan import Plan, TorchInstall, make_plan, with_torch
from losscli.build.targets import CPU, CUDA, LOSS, RUNTIME, TORCH, Target
from losscli.build.toolchain import Tool

LOSSES = ("alpha", "beta")
BINDING, ALPHA, BETA = Target(TORCH), Target(LOSS, CPU, "alpha"), Target(LOSS, CPU, "beta")
ALPHA_CUDA, CUDA_RUNTIME = Target(LOSS, CUDA, "alpha"), Target(RUNTIME, CUDA)

SOURCES = {
    "core/operand.h": "header",
    "core/cuda/runtime.cu": "runtime",
    "bench/probe.h": "header",
    "bench/cpu/probe.cpp": "probe",
    "bench/cuda/probe.cu": "probe",
    "losses/elementwise/loss.h": "header",
    "losses/elementwise/alpha.h": "alpha",
    "losses/elementwise/beta.h": "beta",
    "elementwise/kernels.h": "header",
    "elementwise/cpu/engine.h": "header",
    "elementwise/cpu/engine.cpp": "cpu",
    "elementwise/cpu/sums.cpp": "cpu",
    "elementwise/cuda/launch.cu": "launch",
    "elementwise/cuda/kernel.dtype.cu": "cuda",
    "reduce/cpu/sums.h": "header",
    "reduce/cuda/sums.cuh": "header",
    "torch/ops.cpp": "binding",
}

GCC_VERSION = "g++ (Stand-in) 12.2.0\nCopyright (C) Free Software Foundation, Inc."
NVCC_VERSION = "Cuda compilation tools, release 13.0, V13.0.88"

# Writes its own command line to its output, and that output's name to the file `calls`. All objects
# depend on core/operand.h and on what they are told to include, those of elementwise/cpu on its
# engine.h too. A source that contains `error:` fails by printing itself; blocked.cpp waits for the
# other end of the pipe `pipe` to be closed.
_COMPILER = (Path(__file__).parent / "data" / "programs" / "compiler.sh").read_text()


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@dataclass
class Standin:
    """A workshop in a folder: csrc, a compiler of each kind, a cache."""

    root: Path
    notes: list[str] = field(default_factory=list)
    """The notes of builds."""
    steps: list[str] = field(default_factory=list)
    """ninja's status lines."""

    def __post_init__(self) -> None:
        for name, text in SOURCES.items():
            self.write(name, text)
        for name, version in (("g++", GCC_VERSION), ("nvcc", NVCC_VERSION)):
            text = _COMPILER.replace("@VERSION@", version).replace("@ROOT@", str(self.root))
            write_program(self.root / name, text)

    @property
    def csrc(self) -> Path:
        return self.root / "csrc"

    @property
    def cache(self) -> Cache:
        return Cache(self.root / "cache")

    def write(self, name: str, text: str) -> None:
        path = self.csrc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def torch(self, version: str = "2.13.0", abi: bool = True) -> TorchInstall:
        return TorchInstall(version, self.root / "torch", None, abi)

    def plan(
        self,
        target: Target = ALPHA,
        *,
        compiler: str = "",
        torch: str = "2.13.0",
        abi: bool = True,
        gencode: tuple[str, ...] = ("-gencode=arch=compute_90,code=sm_90",),
    ) -> Plan:
        plan = make_plan(target, self.csrc, self.torch(torch, abi))
        if target.device == CPU:
            gcc = Tool((str(self.root / "g++"),), compiler or GCC_VERSION, (12, 2))
            of_torch = with_torch(gcc, self.torch(torch, abi))
            return plan.with_tool(of_torch if target == BINDING else gcc)
        flags = ("-ccbin", "g++", *gencode)
        nvcc = (str(self.root / "nvcc"),)
        return plan.with_tool(Tool(nvcc, compiler or NVCC_VERSION, (13, 0), flags, flags, gencode))

    def builder(self, *, force: bool = False) -> Builder:
        """Return a builder in this workshop's cache, with the tools of the machine."""
        compilers = Compilers(self.torch())
        cache, notes, steps = self.cache, self.notes.append, self.steps.append
        return Builder(compilers, cache, self.csrc, notes, steps, force)

    def ensure(self, *plans: Plan, force: bool = False) -> list[BuildResult]:
        """Build plans in this workshop's cache."""
        return self.builder(force=force).finish(list(plans or (self.plan(),)))

    def build(
        self, targets: Sequence[Target] = (ALPHA,), *, force: bool = False
    ) -> list[BuildResult]:
        """Obtain libraries as the program does, through the tools of the environment."""
        return self.builder(force=force).obtain(targets)

    def compiled(self) -> list[str]:
        """Return the outputs that compilers were called for since the last look: ``alpha_cpu/x.o``.

        The folders' keys are left out.
        """
        calls = self.root / "calls"
        outputs = calls.read_text().split() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return sorted(
            f"{folder.rpartition('-')[0]}/{name}"
            for folder, _, name in (output.partition("/") for output in outputs)
        )

    def published(self) -> list[Path]:
        return sorted(path.parent for path in self.cache.root.glob("*/manifest.json"))


def cut_short(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:50])
