"""Registers what belongs to a module of torch's once a program imports that module itself."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, register: Callable[[], None]) -> None:
    """Call ``register`` once the module of this name has been imported, now if it has been."""
    if name in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Watcher(name, register))


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for one module, which the other finders find."""

    def __init__(self, name: str, register: Callable[[], None]) -> None:
        self.name, self.register = name, register

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Have the module's loader register once it has run the module."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run(module)
            self.register()

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
