"""Chooses the GPU architectures that the kernels are compiled for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from losscli.errors import UnfitError, UsageError

from .toolchain import dotted

VARIABLE = "LOSSCLI_CUDA_ARCHITECTURES"
OLDEST = (7, 0)
"""Volta: older GPUs have not the instructions that the kernels are written in."""
DROPPED = ((13, 0), (7, 5))
"""The version of CUDA that compiles for no GPU below that compute capability."""
WITHOUT_GPU = ("90",)
"""What a compile check is for: H100 and H200."""


def gencode_flags(
    capabilities: Iterable[tuple[int, int]],
    environ: Mapping[str, str] = os.environ,
    cuda: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Return nvcc's ``-gencode`` flags.

    LOSSCLI_CUDA_ARCHITECTURES ("90;100") decides; else the GPUs that are here; else sm_90. Unless
    it is for the GPUs here exactly, PTX of the newest is added, so that newer GPUs can run it.

    Args:
        capabilities: compute capabilities of the GPUs here: ``(9, 0)``.
        environ: environment variables.
        cuda: nvcc's version.

    Raises:
        UnfitError: all the GPUs here are older than sm_70, or than what nvcc compiles for.
        UsageError: LOSSCLI_CUDA_ARCHITECTURES has one that nvcc does not compile for.
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
        newest = f"the newest here has {dotted(present[-1])}."
        if present[-1] < OLDEST:
            raise UnfitError(
                f"the kernels need a GPU of compute capability {dotted(OLDEST)} or newer; {newest}"
            )
        raise UnfitError(
            f"CUDA {dotted(dropping or ())} dropped GPUs below compute capability "
            f"{dotted(oldest)}; {newest} Install a CUDA {older_cuda} toolkit and a torch built for "
            "it, and name its nvcc in CUDACXX."
        )
    names = asked or tuple(map(_name, usable)) or WITHOUT_GPU
    flags = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    if asked or not present:
        last = max(names, key=_capability)
        flags.append(f"-gencode=arch=compute_{last},code=compute_{last}")
    return tuple(flags)


def dropped_by(cuda: tuple[int, int] | None) -> bool:
    """Tell whether a version of CUDA is one that has dropped old GPUs."""
    return cuda is not None and cuda >= DROPPED[0]


def covers(gencode: Iterable[str], capabilities: Iterable[tuple[int, int]]) -> bool:
    """Tell whether kernels compiled with these flags run on GPUs of these capabilities.

    Code of a GPU runs on those of its major version that are not older; PTX on all newer ones.
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
    """Read ``90;100`` in LOSSCLI_CUDA_ARCHITECTURES; commas and spaces part as well.

    Raises:
        UsageError: it holds anything else.
    """
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
    """Return the compute capability of each GPU that PyTorch sees; none where there is no GPU."""
    import torch

    # A forked child may not ask: CUDA, once initialised, does not survive a fork.
    if not torch.cuda.is_available() or torch.cuda._is_in_bad_fork():
        return []
    return [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]


def _capability(name: str) -> tuple[int, int]:
    """Return ``(9, 0)`` for ``90a``."""
    return divmod(int(name.rstrip("af")), 10)


def _name(capability: tuple[int, int]) -> str:
    """Return ``90`` for ``(9, 0)``."""
    return "{}{}".format(*capability)
