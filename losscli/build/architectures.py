"""Chooses GPU architectures for the kernels."""

import os
import re
from collections.abc import Iterable, Mapping

from losscli.errors import UnfitError, UsageError
from losscli.machine.pytorch import torch

from .toolchain import dotted

VARIABLE = "LOSSCLI_CUDA_ARCHITECTURES"
OLDEST = (7, 0)
"""Volta; older GPUs lack instructions that the kernels use."""
DROPPED = ((13, 0), (7, 5))
"""The CUDA version that drops GPUs below that compute capability."""
WITHOUT_GPU = ("90",)
"""For compile checks: H100 and H200."""


def gencode_flags(
    capabilities: Iterable[tuple[int, int]],
    environ: Mapping[str, str] = os.environ,
    cuda: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Return nvcc's ``-gencode`` flags.

    LOSSCLI_CUDA_ARCHITECTURES ("90;100") has priority, then the GPUs present, then sm_90. Unless
    the code is only for the GPUs present, PTX of the newest architecture is added for newer GPUs.

    Raises:
        UnfitError: all GPUs are older than nvcc or the kernels support.
        UsageError: LOSSCLI_CUDA_ARCHITECTURES names one that nvcc does not support.
    """
    asked = requested_architectures(environ)
    dropping = cuda if dropped_by(cuda) else None
    oldest = DROPPED[1] if dropping else OLDEST
    older_cuda = DROPPED[0][0] - 1
    for name in asked:
        if _capability(name) < oldest:
            raise UsageError(
                f"{VARIABLE} has '{name}', but CUDA {dotted(dropping or ())} compiles for "
                f"{_name(oldest)} or newer. Name the nvcc of a CUDA {older_cuda} toolkit in "
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
    names = asked or tuple(map(_name, usable)) or WITHOUT_GPU
    flags = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    if asked or not present:
        last = max(names, key=_capability)
        flags.append(f"-gencode=arch=compute_{last},code=compute_{last}")
    return tuple(flags)


def dropped_by(cuda: tuple[int, int] | None) -> bool:
    """Tell whether a CUDA version dropped old GPUs."""
    return cuda is not None and cuda >= DROPPED[0]


def covers(gencode: Iterable[str], capabilities: Iterable[tuple[int, int]]) -> bool:
    """Tell whether kernels with these flags run on all GPUs of these capabilities.

    A GPU's code runs on the same or newer GPUs of its major version, PTX on all newer ones.
    """
    codes = [flag.rpartition("code=")[2].partition("_") for flag in gencode]
    plain = [(kind, int(number)) for kind, _, number in codes if number.isdecimal()]
    return all(
        any(
            number <= 10 * major + minor and (kind == "compute" or number // 10 == major)
            for kind, number in plain
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
