"""Finds an nvcc whose code the driver and PyTorch can run, and the GPUs that it compiles for."""

import os
import re
import shlex
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from losscli.errors import UnfitError, UsageError
from losscli.machine.commands import command_in
from losscli.machine.pytorch import torch

from .toolchain import Tool, as_numbers, dotted, read_version, require_program, version_text, which

VARIABLE = "LOSSCLI_CUDA_ARCHITECTURES"
OLDEST = (7, 0)
"""Volta; older GPUs lack instructions that the kernels use."""
DROPPED = ((13, 0), (7, 5))
"""The CUDA version that drops GPUs below that compute capability."""
MINIMUM_CUDA = (12, 0)
"""The first that generates code for every tuned architecture."""
USUAL_PLACE = Path("/usr/local")
"""The folder of installed toolkits: ``cuda``, ``cuda-12.4``."""


def gencode_flags(
    capabilities: Iterable[tuple[int, int]],
    environ: Mapping[str, str] = os.environ,
    cuda: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Return nvcc's ``-gencode`` flags.

    LOSSCLI_CUDA_ARCHITECTURES ("90;100") has priority, then the GPUs present, then sm_90. Unless
    the code is only for the GPUs present, PTX of the newest architecture is added for newer GPUs.
    UnfitError if all GPUs are older than the kernels support, UsageError if a name is too old.
    """
    asked = requested_architectures(environ)
    oldest = DROPPED[1] if cuda and cuda >= DROPPED[0] else OLDEST
    if asked and _capability(asked[0]) < oldest:
        raise UsageError(
            f"{VARIABLE} has '{asked[0]}', but CUDA {dotted(cuda or ())} compiles for "
            f"{_name(oldest)} or newer. Name the nvcc of a CUDA {DROPPED[0][0] - 1} toolkit in "
            "CUDACXX."
        )
    present = sorted(set(capabilities))
    usable = [capability for capability in present if capability >= oldest]
    if present and not usable and not asked:
        # An nvcc that dropped all of them was not chosen: see Requirements.
        raise UnfitError(
            f"the kernels need a GPU of compute capability {dotted(OLDEST)} or newer; the newest "
            f"here has {dotted(present[-1])}."
        )
    names = asked or tuple(map(_name, usable)) or ("90",)  # H100 and H200, for compile checks
    flags = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    if asked or not present:
        last = max(names, key=_capability)
        flags.append(f"-gencode=arch=compute_{last},code=compute_{last}")
    return tuple(flags)


def covers(gencode: Iterable[str], capabilities: Iterable[tuple[int, int]]) -> bool:
    """Tell whether kernels with these flags run on all GPUs of these capabilities.

    A GPU's code runs on the same or newer GPUs of its major version, PTX on all newer ones.
    """
    codes = re.findall(r"code=(compute|sm)_(\d+)\b", " ".join(gencode))
    return all(
        any(
            int(number) <= 10 * major + minor and (kind == "compute" or int(number) // 10 == major)
            for kind, number in codes
        )
        for major, minor in capabilities
    )


def requested_architectures(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Read LOSSCLI_CUDA_ARCHITECTURES, such as ``90;100``; UsageError for anything else."""
    names = [name for name in re.split(r"[;,\s]+", environ.get(VARIABLE, "")) if name]
    for name in names:
        if not re.fullmatch(r"\d{2,3}[af]?", name):
            raise UsageError(
                f"{VARIABLE} should list architectures such as 90;100, but has '{name}'."
            )
        if _capability(name) < OLDEST:
            raise UsageError(
                f"{VARIABLE} has '{name}', but the kernels need {_name(OLDEST)} or newer."
            )
    return tuple(sorted(set(names), key=lambda name: (_capability(name), name)))


def present_capabilities() -> list[tuple[int, int]]:
    """Return the GPUs' compute capabilities."""
    # A forked child may not ask: an initialised CUDA does not survive a fork.
    if not torch.cuda.is_available() or torch.cuda._is_in_bad_fork():
        return []
    return [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]


def _capability(name: str) -> tuple[int, int]:
    return divmod(int(name.rstrip("af")), 10)


def _name(capability: tuple[int, int]) -> str:
    return "{}{}".format(*capability)


@dataclass(frozen=True)
class Requirements:
    """The driver, torch and GPU that code must run on; None if absent."""

    driver: tuple[int, int] | None = None
    """The newest CUDA that the driver runs."""
    torch: tuple[int, int] | None = None
    """The CUDA that PyTorch is built with."""
    newest_gpu: tuple[int, int] | None = None
    """The highest compute capability among the GPUs here."""

    def wrong(self, version: tuple[int, int]) -> str | None:
        """Return why an nvcc of this version is unsuitable."""
        name = f"is CUDA {dotted(version)}"
        if version < MINIMUM_CUDA:
            return f"{name}, but the kernels need {dotted(MINIMUM_CUDA)} or newer"
        if self.newest_gpu and self.newest_gpu < DROPPED[1] and version >= DROPPED[0]:
            return (
                f"{name}, which dropped GPUs below compute capability {dotted(DROPPED[1])}, and "
                f"the newest here has {dotted(self.newest_gpu)}"
            )
        # Within a major version, programs run on drivers older than their toolkit.
        if self.driver and version[0] > self.driver[0]:
            return f"{name}, but the driver runs CUDA {dotted(self.driver)} at most"
        if self.torch and version[0] != self.torch[0]:
            return f"{name}, but torch is built for CUDA {dotted(self.torch)}"
        return None

    @property
    def advice(self) -> str:
        """Advice on what to install."""
        if self.newest_gpu and self.newest_gpu < DROPPED[1]:
            major = DROPPED[0][0] - 1
            if self.torch and self.torch[0] != major:
                return (
                    f"Install a CUDA {major} toolkit and a torch built for CUDA {major}, and name "
                    "the toolkit's nvcc in CUDACXX."
                )
        elif self.torch and self.driver and self.torch[0] > self.driver[0]:
            return (
                f"Update the driver to one for CUDA {self.torch[0]}, or install a torch built for "
                f"CUDA {self.driver[0]} and a toolkit of that version."
            )
        elif known := self.torch or self.driver:
            major = known[0]
        else:
            return f"Install CUDA {dotted(MINIMUM_CUDA)} or newer and name its nvcc in CUDACXX."
        return f"Install a CUDA {major} toolkit and name its nvcc in CUDACXX."


def find_nvcc(requirements: Requirements, environ: Mapping[str, str] = os.environ) -> Tool:
    """Find nvcc: $CUDACXX, or the first that meets the requirements; UnfitError if none does.

    The order is $CUDA_HOME, $CUDA_PATH, the PATH, /usr/local/cuda* and pip's nvidia packages.
    """
    if command := command_in("CUDACXX", environ):
        require_program(command[0], "CUDACXX", "nvcc", environ)
        candidates = [command]
    else:
        programs = dict.fromkeys(p for _, found in _programs_by_place(environ) for p in found)
        candidates = [(str(program),) for program in programs if os.access(program, os.X_OK)]
    if not candidates:
        raise UnfitError(
            f"no nvcc on the PATH, under CUDA_HOME or in {USUAL_PLACE}/cuda. {requirements.advice}"
        )
    wrong = []
    for candidate in candidates:
        name = shlex.join(candidate)
        try:
            identity = version_text(candidate)
            version = read_version(r"release (\d+)\.(\d+)", identity, name)
            if not (problem := requirements.wrong(version)):
                return Tool(candidate, identity, version)
            wrong.append(f"{name} {problem}")
        except UnfitError as error:
            wrong.append(str(error).removesuffix("."))
    if len(wrong) == 1 and "is CUDA" not in wrong[0]:
        raise UnfitError(f"{wrong[0]}.")
    raise UnfitError(f"{'; '.join(wrong)}. {requirements.advice}")


def searched(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return where nvcc is searched, in order: ``CUDA_HOME=/opt/cuda``, ``the PATH``."""
    command = environ.get("CUDACXX", "").strip()
    return [f"CUDACXX={command}"] if command else [name for name, _ in _programs_by_place(environ)]


def parse_version(text: str | None) -> tuple[int, int] | None:
    """Return ``(12, 4)`` for ``12.4``, None for anything else."""
    parts = (text or "").split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _programs_by_place(environ: Mapping[str, str]) -> Iterator[tuple[str, list[Path]]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(name):
            yield f"{name}={environ[name]}", [Path(environ[name]) / "bin" / "nvcc"]
    on_path = which("nvcc", environ)
    yield "the PATH", [Path(on_path)] if on_path else []
    toolkits = USUAL_PLACE.glob("cuda-*")
    newest_first = sorted(toolkits, key=lambda folder: as_numbers(folder.name), reverse=True)
    folders = [USUAL_PLACE / "cuda", *newest_first]
    yield f"{USUAL_PLACE}/cuda*", [folder / "bin" / "nvcc" for folder in folders]
    packages = Path(sysconfig.get_path("purelib")) / "nvidia"
    yield str(packages), sorted(packages.glob("*/bin/nvcc"))
