"""Tells whether the kernels can be built on this system, with one message if not."""

from __future__ import annotations

import platform

from losscli.errors import UnfitError

NO_ROCM = "losscli's kernels are CUDA C++; ROCm is not supported. Use device cpu."


def require_platform(system: str | None = None) -> None:
    """Raise UnfitError on an operating system that the kernels are not built for.

    ``losscli --help``, ``list`` and ``compare`` need no kernels and do not ask.
    """
    system = system or platform.system()
    if system == "Linux":
        return
    name = {"Darwin": "macOS"}.get(system, system or "an unknown system")
    instead = "Use WSL 2" if system == "Windows" else "Use Linux, in a container for example"
    raise UnfitError(f"losscli's kernels are built on Linux only, and this is {name}. {instead}.")
