"""The languages that kernels are written in inside Python: which a file uses, and which tune."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple


class Language(NamedTuple):
    """A language: a package that compiles functions written in Python."""

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
    """Return the version of an installed package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def languages_of(imports: Collection[str]) -> tuple[str, ...]:
    """Return the languages among the modules that a source imports, with their versions."""
    return tuple(
        f"{each.name} {version_of(each.package) or '(not installed)'}"
        for each in LANGUAGES
        if each.module in imports
    )
