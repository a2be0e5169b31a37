"""The libraries that a wheel holds, which ``tools/wheel`` makes, in variants by what they need.

::

    losscli/prebuilt/manifest.json                          facts and hashes of all
    losscli/prebuilt/liblosscli_mse_cpu.x86-64-v3.so        for that level of x86-64
    losscli/prebuilt/liblosscli_mse_cuda.cuda-13.so         for that major version of CUDA
    losscli/prebuilt/liblosscli_torch.torch-2.13.so         for that torch
"""

import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from losscli.console.notes import note
from losscli.machine.kernel_files import first_core

from .cache import MANIFEST, Manifest, portable_key
from .nvcc import parse_version
from .plan import Plan
from .targets import CPU, TORCH, Target
from .toolchain import as_numbers

FOLDER = Path(__file__).parents[1] / "prebuilt"
LEVELS = {
    "x86_64": {
        "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
        "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
        "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"},
    },
    "aarch64": {"armv8-a": {"fp", "asimd"}},
}
"""The levels of each architecture, best first, with the flags of /proc/cpuinfo that each adds."""


@dataclass(frozen=True)
class Prebuilt:
    """A wheel's libraries, by file name."""

    root: Path
    libraries: Mapping[str, Manifest]
    damaged: set[str] = field(default_factory=set)
    """The file names of which the user was told."""

    def find(
        self, plan: Plan, fits: Callable[[Manifest], bool], notify: Callable[[str], None]
    ) -> Path | None:
        """Return a variant's library if it has these sources, runs here and is intact."""
        known = self.libraries.get(plan.library)
        if not known or known.portable != portable_key(plan) or not fits(known):
            return None
        if as_numbers(known.glibc) > glibc():
            return None
        path = self.root / plan.library
        damage = known.damage(self.root)
        if damage and plan.library not in self.damaged:
            self.damaged.add(plan.library)
            notify(f"{path} is damaged and not used: {damage}. Reinstall losscli.")
        return None if damage else path

    def write(self) -> None:
        """Write the manifest."""
        facts = [asdict(self.libraries[name]) for name in sorted(self.libraries)]
        text = json.dumps({"schema_version": 1, "libraries": facts}, indent=1)
        (self.root / MANIFEST).write_text(f"{text}\n")


def read(root: Path) -> Prebuilt:
    """Return a folder's libraries; OSError, ValueError, TypeError or KeyError if damaged."""
    found = map(Manifest.of, json.loads((root / MANIFEST).read_text())["libraries"])
    return Prebuilt(root, {each.library: each for each in found})


@cache
def wheel_libraries() -> Prebuilt | None:
    """Return the libraries of the wheel that losscli is from, if it has any."""
    try:
        return read(FOLDER) if FOLDER.is_dir() else None
    except (OSError, ValueError, TypeError, KeyError):
        note(f"{FOLDER / MANIFEST} is missing or damaged. Reinstall losscli.")
        return None


def cpu_levels(machine: str = platform.machine()) -> list[str]:
    """Return the levels that this CPU runs, best first."""
    lines = (line for line in first_core() if line.startswith(("flags", "Features")))
    flags = {*next(lines, "").partition(":")[2].split()}
    levels = LEVELS.get(machine, {})
    return [
        level
        for place, level in enumerate(levels)
        if set().union(*[*levels.values()][place:]) <= flags
    ]


def torch_variant(version: str) -> str | None:
    """Return ``torch-2.13``, or None for a build that is no release: its ABI may differ."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.\d+(\+cpu|\+cu\d+)?", version)
    return f"torch-{found[1]}.{found[2]}" if found else None


def cuda_variant(version: str | None) -> str | None:
    """Return ``cuda-13`` for ``13.0``."""
    found = parse_version(version)
    return f"cuda-{found[0]}" if found else None


def runnable(target: Target, torch: str, cuda: str | None) -> list[str]:
    """Return the variants of a library that run here, best first."""
    if target.part != TORCH and target.device == CPU:
        return cpu_levels()
    found = torch_variant(torch) if target.part == TORCH else cuda_variant(cuda)
    return [found] if found else []


def glibc() -> tuple[int, ...]:
    """Return glibc's version; (0, 0) for another C library."""
    name, version = platform.libc_ver()
    return as_numbers(version) if name == "glibc" else (0, 0)
