"""The languages that kernels are written in inside Python: which a file uses, and which tune."""

from __future__ import annotations

import ast
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


def languages_of(source: str) -> tuple[str, ...]:
    """Return the languages that a source imports, with their versions; of no Python none."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    imported = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported.add(node.module.partition(".")[0])
    return tuple(
        f"{each.name} {version_of(each.package) or '(not installed)'}"
        for each in LANGUAGES
        if each.module in imported
    )
