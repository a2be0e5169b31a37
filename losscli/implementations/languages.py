"""Kernel languages embedded in Python, and their tuning, which counts as building."""

import sys
import time
from collections.abc import Callable
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple


class Language(NamedTuple):
    """A package that compiles kernels written in Python."""

    name: str
    module: str
    """What a file imports."""
    package: str
    tuner: tuple[str, str, str] | None = None
    """The module, class and method that search for the fastest kernel."""


LANGUAGES = (
    Language("Triton", "triton", "triton", ("triton.runtime.autotuner", "Autotuner", "_bench")),
    Language("Helion", "helion", "helion", ("helion.runtime.kernel", "BoundKernel", "autotune")),
    Language("CuTe DSL", "cutlass", "nvidia-cutlass-dsl"),
    Language("TileLang", "tilelang", "tilelang", ("tilelang.autotuner.tuner", "AutoTuner", "run")),
)
_COMPILER = ("torch.utils", "cpp_extension", "_jit_compile")
"""Compiles C++ and CUDA, perhaps in the first call."""


def version_of(package: str) -> str:
    """Return a package's installed version, or an empty string."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


class Tuning:
    """The tuning in a worker so far."""

    def __init__(self, begins: Callable[[], None]) -> None:
        """``begins`` is called when a request first starts tuning."""
        self.seconds = 0.0
        self._begins, self._begun, self._depth = begins, False, 0
        self._watched: set[Any] = set()

    def watch(self) -> None:
        """Watch newly imported tuners for a new request."""
        self._begun = False
        for module, name, method in (_COMPILER, *(each.tuner for each in LANGUAGES if each.tuner)):
            tuner = getattr(sys.modules.get(module), name, None)
            if tuner is not None and tuner not in self._watched and hasattr(tuner, method):
                self._watched.add(tuner)
                setattr(tuner, method, self._timed(getattr(tuner, method)))

    def _timed(self, tune: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(tune)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            if not self._begun:
                self._begun = True
                self._begins()
            start, self._depth = time.monotonic(), self._depth + 1
            try:
                return tune(*arguments, **keywords)
            finally:
                self._depth -= 1
                if not self._depth:  # one language tunes by another
                    self.seconds += time.monotonic() - start

        return timed
