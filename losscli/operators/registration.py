"""Defines the operators of all losses on import, without building.

The first call reaches a stub, which loads libraries and calls again. These register under
dispatch keys of their device, which precede the stubs'.
"""

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from losscli.build.targets import DEVICES
from losscli.errors import BuildError
from losscli.losses import LOSSES, ROW_LOSSES, WEIGHTED, RowSpec, Spec
from losscli.losses import operators as bound
from losscli.losses.kinds import no_kernel_takes

from . import elementwise, fallback, loading, rows
from .elementwise import arguments_of

_NAMESPACE, _OF_BENCH = "losscli", "losscli_bench"
_KERNELS, _AUTOGRAD = "CompositeExplicitAutograd", "Autograd"


def incoming(grad_output: Tensor | float) -> tuple[Tensor | None, float]:
    """Return grad_output as ``NAME_with_grad`` takes it: a tensor, or a factor."""
    return (grad_output, 1.0) if isinstance(grad_output, Tensor) else (None, float(grad_output))


class _Stub:
    def __init__(self, operator: OpOverload, spec: Spec, suffix: str, key: str) -> None:
        self.operator, self.spec, self.suffix, self.key = operator, spec, suffix, key
        self.__name__ = f"{spec.name}{suffix}_stub"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = arguments_of(self.operator, arguments, named)
        tensors = {n: each for n, each in given.items() if isinstance(each, Tensor)}
        device = fallback.device_of(tensors.values())
        for n, each in tensors.items():
            if wrong := no_kernel_takes(each):
                raise NotImplementedError(f"{self.operator.name()}: {n} {wrong}")
        running = _calls.__dict__.setdefault("running", set())
        if self in running:
            raise BuildError(
                f"{self.operator.name()} is still without an implementation ({self.key}) "
                "after its library was loaded. Run `losscli build --force`."
            )
        running.add(self)
        try:
            if self._is_loaded(device, tensors.values()):
                # Under export or a compiler, Python caches each key's kernel.
                self.operator._dispatch_cache.clear()
                return self.operator(*arguments, **named)
        finally:
            running.discard(self)
        below = self.key == _KERNELS
        return fallback.compute(self.spec, self.suffix, [*given.values()], below_autograd=below)

    def _is_loaded(self, device: str, tensors: Iterable[Tensor]) -> bool:
        """Load what is missing; False if the formula must be used."""
        if self.operator.namespace == _OF_BENCH:
            loading.load_loss(self.spec.name, device, strategies=True)
            return True
        is_traced = torch._C._len_torch_dispatch_stack() or any(
            torch._C._dispatch_keys(each).has(torch._C.DispatchKey.Python) for each in tensors
        )
        if self.key == _KERNELS or (device in DEVICES and not is_traced):
            # With the binding, so that they are built in parallel.
            return fallback.has_kernels(self.spec.name, device)
        return fallback.has_binding()


def when_imported(name: str, register: Callable[[], object]) -> None:
    """Call ``register`` when a module has been imported, or now if it was."""
    if name in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Watcher(name, register))


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for one module, which other finders import."""

    def __init__(self, name: str, register: Callable[[], object]) -> None:
        self.name, self.register = name, register

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
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


def _define(spec: Spec) -> None:
    schemas = rows.schemas(spec) if isinstance(spec, RowSpec) else elementwise.schemas(spec)
    for full_name, schema in schemas.items():
        namespace, name = full_name.split("::")
        library, suffix = _LIBRARIES[namespace], name.removeprefix(spec.name)
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        operator = getattr(getattr(torch.ops, namespace), name).default
        if namespace == _NAMESPACE and "backward" not in suffix:
            bound.OPERATORS[name] = operator
        if suffix.endswith("_reference"):
            composed = rows.COMPOSED[suffix.removesuffix("_reference")]
            library.impl(name, partial(composed, spec), "CompositeImplicitAutograd")
            continue
        library.impl(name, _Stub(operator, spec, suffix, _KERNELS), _KERNELS)
        if suffix == "_of_part":
            library.impl(name, torch.library.fallthrough_kernel, _AUTOGRAD)
        elif suffix != "_double_backward":
            library.impl(name, _Stub(operator, spec, suffix, _AUTOGRAD), _AUTOGRAD)
        if isinstance(spec, RowSpec):
            fake = partial(rows.FAKES[suffix], spec)
            rule = partial(rows.one_by_one, operator)
        else:
            fake = partial(elementwise.FAKES[suffix], len(spec.operands))
            rule = partial(elementwise.RULES[suffix], operator, len(spec.operands))
        torch.library.register_fake(full_name, fake, lib=library)
        if isinstance(spec, RowSpec) and suffix in ("", "_with_grad_"):
            library.impl(name, partial(rows.COMPOSED[suffix], spec), "FuncTorchBatched")
        elif namespace == _NAMESPACE:
            torch.library.register_vmap(full_name, rule, lib=library)


_calls = threading.local()
_LIBRARIES = {
    namespace: torch.library.Library(namespace, "DEF") for namespace in (_NAMESPACE, _OF_BENCH)
}


def _take_dtensors() -> None:
    import_module("losscli.operators.sharding").register(_ELEMENTWISE)


_ELEMENTWISE = (*LOSSES.values(), *WEIGHTED.values())
for _spec in (*ROW_LOSSES.values(), *_ELEMENTWISE):
    _define(_spec)
bound.incoming, bound.is_compiling = incoming, torch.compiler.is_compiling
when_imported("torch.distributed.tensor", _take_dtensors)
