"""Defines the operators of all losses on import, without building.

The first call reaches a stub, which loads libraries and calls again. These register under
device-specific dispatch keys, which precede the stubs'.
"""

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from losscli.build.targets import DEVICES
from losscli.errors import BuildError
from losscli.losses import LOSSES, ROW_LOSSES, WEIGHTED, LossSpec, RowSpec
from losscli.losses import operators as bound
from losscli.losses.kinds import no_kernel_takes

from . import elementwise, fallback, loading, rows
from .elementwise import BENCH_NAMESPACE, KERNELS, NAMESPACE

_SPECS = (*LOSSES.values(), *WEIGHTED.values())


def incoming(grad_output: Tensor | float) -> tuple[Tensor | None, float]:
    """Return grad_output as ``NAME_with_grad`` takes it: a tensor, or a factor."""
    if isinstance(grad_output, Tensor):
        return grad_output, 1.0
    return None, float(grad_output)


class _Stub:
    """Stands for an operator until its library is loaded."""

    def __init__(self, namespace: str, name: str, spec: LossSpec | RowSpec, key: str) -> None:
        self.namespace, self.name, self.spec, self.key = namespace, name, spec, key
        self.__name__ = f"{name}_stub"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Load what is missing, and call the operator again."""
        operator = getattr(getattr(torch.ops, self.namespace), self.name).default
        names = (argument.name for argument in operator._schema.arguments)
        given = dict(zip(names, arguments, strict=False)) | named
        tensors = {n: each for n, each in given.items() if isinstance(each, Tensor)}
        device = _device(tensors.values())
        for n, each in tensors.items():
            if wrong := no_kernel_takes(each):
                raise NotImplementedError(f"{self.namespace}::{self.name}: {n} {wrong}")
        with self._once():
            if self._is_loaded(device, tensors.values()):
                # Under export or a compiler, Python caches each key's kernel.
                operator._dispatch_cache.clear()
                return operator(*arguments, **named)
        every = [given.get(a.name, a.default_value) for a in operator._schema.arguments]
        suffix = self.name.removeprefix(self.spec.name)
        return fallback.compute(self.spec, suffix, every, below_autograd=self.key == KERNELS)

    def _is_loaded(self, device: str, tensors: Iterable[Tensor]) -> bool:
        """Load what is missing; False if the formula must be used."""
        if self.namespace == BENCH_NAMESPACE:
            loading.load_loss(self.spec.name, device, strategies=True)
            return True
        is_eager = device in DEVICES and not any(map(_is_traced, tensors))
        if self.key == KERNELS or is_eager:
            # With the binding, so that they are built in parallel.
            return fallback.has_kernels(self.spec.name, device)
        return fallback.has_binding()

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Reject a second call: the loaded library did not register this operator."""
        running = _calls.__dict__.setdefault("running", set())
        if self in running:
            raise BuildError(
                f"{self.namespace}::{self.name} is still without an implementation ({self.key}) "
                "after its library was loaded. Run `losscli build --force`."
            )
        running.add(self)
        try:
            yield
        finally:
            running.discard(self)


def _device(tensors: Iterable[Tensor]) -> str:
    """Return the device type that the dispatcher uses: not the CPU if there is another."""
    kinds = [tensor.device.type for tensor in tensors]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def _is_traced(tensor: Tensor) -> bool:
    """Tell whether a tensor has no data: a fake one, or one in a dispatch mode."""
    if torch._C._len_torch_dispatch_stack():
        return True
    return torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)


def _take_dtensors() -> None:
    from . import sharding

    if not sharding.is_supported():
        return
    for spec in _SPECS:
        for suffix in sharding.SUFFIXES:
            operator = getattr(getattr(torch.ops, NAMESPACE), spec.name + suffix).default
            sharding.register(operator, suffix, len(spec.operands))


def when_imported(name: str, register: Callable[[], None]) -> None:
    """Call ``register`` when a module has been imported, or now if it was."""
    if name in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Watcher(name, register))


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for one module, which other finders import."""

    def __init__(self, name: str, register: Callable[[], None]) -> None:
        self.name, self.register = name, register

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Register after the module's loader has run it."""
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


_calls = threading.local()
_LIBRARIES = {
    namespace: torch.library.Library(namespace, "DEF") for namespace in (NAMESPACE, BENCH_NAMESPACE)
}
for _row_spec in ROW_LOSSES.values():
    rows.define(_row_spec, _LIBRARIES[NAMESPACE], partial(_Stub, NAMESPACE))
    for _name in rows.schemas(_row_spec):
        if not _name.removeprefix(_row_spec.name).startswith("_backward"):
            bound.OPERATORS[_name] = getattr(torch.ops.losscli, _name).default
for _spec in _SPECS:
    elementwise.define(_spec, _LIBRARIES, _Stub)
    for _name in (_spec.name, f"{_spec.name}_with_grad"):
        bound.OPERATORS[_name] = getattr(torch.ops.losscli, _name).default
bound.incoming, bound.is_compiling = incoming, torch.compiler.is_compiling
when_imported("torch.distributed.tensor", _take_dtensors)
