"""Which GPU architectures the kernels are compiled for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

from losscli.errors import UnfitError, UsageError

VARIABLE = "LOSSCLI_CUDA_ARCHITECTURES"
OLDEST = 70
"""Volta: older GPUs have not the instructions that the kernels are written in."""
WITHOUT_GPU = ("90",)
"""What a compile check is for: H100 and H200."""


def gencode_flags(
    capabilities: Iterable[tuple[int, int]], environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return nvcc's ``-gencode`` flags.

    LOSSCLI_CUDA_ARCHITECTURES ("90;100") decides; else the GPUs that are here; else sm_90. Unless
    it is for the GPUs here exactly, PTX of the newest is added, so that newer GPUs can run it.

    Args:
        capabilities: compute capabilities of the GPUs here: ``(9, 0)``.
        environ: environment variables.

    Raises:
        UnfitError: all the GPUs here are older than sm_70.
    """
    asked = requested_architectures(environ)
    present = sorted({f"{major}{minor}" for major, minor in capabilities}, key=int)
    if present and not asked:
        newest = present[-1]
        present = [name for name in present if int(name) >= OLDEST]
        if not present:
            raise UnfitError(
                f"the kernels need a GPU of compute capability {_dotted(OLDEST)} or newer; the "
                f"newest here has {_dotted(int(newest))}."
            )
    names = asked or present or WITHOUT_GPU
    flags = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in names]
    if asked or not present:
        newest = max(names, key=_number)
        flags.append(f"-gencode=arch=compute_{newest},code=compute_{newest}")
    return tuple(flags)


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
        if _number(name)[0] < OLDEST:
            raise UsageError(f"{VARIABLE} has '{name}', but the kernels need {OLDEST} or newer.")
    return tuple(sorted(set(names), key=_number))


def present_capabilities() -> list[tuple[int, int]]:
    """Return the compute capability of each GPU that PyTorch sees; none where there is no GPU."""
    import torch

    # A forked child may not ask: CUDA, once initialised, does not survive a fork.
    if not torch.cuda.is_available() or torch.cuda._is_in_bad_fork():
        return []
    return [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]


def _dotted(architecture: int) -> str:
    return f"{architecture // 10}.{architecture % 10}"


def _number(name: str) -> tuple[int, str]:
    return int(name.rstrip("af")), name
