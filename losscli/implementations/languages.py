"""The kernel languages embedded in Python, and which of them tune."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple


class Language(NamedTuple):
    """A package that compiles kernels written in Python."""

    name: str
    module: str
    """What a file imports."""
    package: str
    """What is installed."""
    tuner: tuple[str, str, str] | None = None
    """The module, class and method that try one kernel, or several, to find the fastest."""


LANGUAGES = (
    Language("Triton", "triton", "triton", ("triton.runtime.autotuner", "Autotuner", "_bench")),
    Language("Helion", "helion", "helion", ("helion.runtime.kernel", "BoundKernel", "autotune")),
    Language("CuTe DSL", "cutlass", "nvidia-cutlass-dsl"),
    Language("TileLang", "tilelang", "tilelang", ("tilelang.autotuner.tuner", "AutoTuner", "run")),
)


def version_of(package: str) -> str:
    """Return the version of an installed package, or an empty string."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def languages_of(imports: Collection[str]) -> tuple[str, ...]:
    """Return the kernel languages that a source imports, with their versions."""
    return tuple(
        f"{each.name} {version_of(each.package) or '(not installed)'}"
        for each in LANGUAGES
        if each.module in imports
    )
