"""Defines the operators of every loss when it is imported, without building anything.

For a loss ``NAME`` of operands ``input, target`` and a parameter ``beta``::

    losscli::NAME(Tensor input, Tensor target, str reduction, float beta, int site=0) -> Tensor
    losscli::NAME_with_grad(Tensor input, Tensor target, str reduction, float beta,
        Tensor? grad_output=None, float factor=1.0) -> (Tensor, Tensor)
    losscli::NAME_backward(Tensor grad_output, Tensor input, Tensor target, str reduction,
        float beta, bool[2] wanted) -> (Tensor, Tensor)
    losscli::NAME_double_backward(Tensor grad_grad_input, Tensor grad_grad_target,
        Tensor grad_output, Tensor input, Tensor target, str reduction, float beta)
        -> (Tensor, Tensor, Tensor)
    losscli_bench::NAME(Tensor input, Tensor target, str reduction, float beta, str strategy)
        -> Tensor

The first call of each goes to a stub of this module, which loads what the call needs and calls
again. The libraries register themselves under keys of single devices, which the dispatcher prefers
to the stubs' keys: nothing is overridden, and no later call comes here.

The operators of losses over rows have the same stubs, and are defined in :mod:`.row_operators`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from losscli.errors import BuildError
from losscli.losses import LOSSES, ROW_LOSSES, WEIGHTED, LossSpec
from losscli.losses import operators as bound

from . import batching, fake, load, row_operators
from .late import when_imported
from .targets import DEVICES

_SPECS = (*LOSSES.values(), *WEIGHTED.values())
NAMESPACE, BENCH_NAMESPACE = "losscli", "losscli_bench"
_KERNELS, _AUTOGRAD = "CompositeExplicitAutograd", "Autograd"


def schemas(spec: LossSpec) -> dict[str, str]:
    """Return the schema of each operator of a loss by its full name."""
    names = [operand.name for operand in spec.operands]
    count, name = len(names), spec.name
    operands = ", ".join(f"Tensor {operand}" for operand in names)
    seconds = ", ".join(f"Tensor grad_grad_{operand}" for operand in names)
    settings = ", ".join(["str reduction", *(f"float {p.name}" for p in spec.parameters)])
    one = f"{operands}, {settings}"
    return {
        f"losscli::{name}": f"({one}, int site=0) -> Tensor",
        f"losscli::{name}_with_grad": (
            f"({one}, Tensor? grad_output=None, float factor=1.0) -> (Tensor, Tensor)"
        ),
        f"losscli::{name}_backward": (
            f"(Tensor grad_output, {one}, bool[{count}] wanted) -> {_tensors(count)}"
        ),
        f"losscli::{name}_double_backward": (
            f"({seconds}, Tensor grad_output, {one}) -> {_tensors(count + 1)}"
        ),
        f"losscli_bench::{name}": f"({one}, str strategy) -> Tensor",
    }


def incoming(grad_output: Tensor | float) -> tuple[Tensor | None, float]:
    """Return an incoming gradient as ``NAME_with_grad`` takes it: a tensor, or a factor."""
    if isinstance(grad_output, Tensor):
        return grad_output, 1.0
    return None, float(grad_output)


def _tensors(count: int) -> str:
    return f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"


_FAKES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    (NAMESPACE, "", fake.loss),
    (NAMESPACE, "_with_grad", fake.with_grad),
    (NAMESPACE, "_backward", fake.backward),
    (NAMESPACE, "_double_backward", fake.double_backward),
    (BENCH_NAMESPACE, "", fake.loss),
)


def _define(spec: LossSpec) -> None:
    """Define the operators of a loss, with fake implementations and stubs."""
    for full_name, schema in schemas(spec).items():
        namespace, name = full_name.split("::")
        library = _LIBRARIES[namespace]
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        stub = partial(_Stub, namespace, name, spec.name)
        library.impl(name, stub(_KERNELS), _KERNELS)
        if not name.endswith("_double_backward"):
            library.impl(name, stub(_AUTOGRAD), _AUTOGRAD)
    for namespace, suffix, function in _FAKES:
        full_name = f"{namespace}::{spec.name}{suffix}"
        implementation = partial(function, len(spec.operands))
        torch.library.register_fake(full_name, implementation, lib=_LIBRARIES[namespace])
    for suffix, rule in batching.RULES.items():
        full_name = f"{NAMESPACE}::{spec.name}{suffix}"
        operator = getattr(getattr(torch.ops, NAMESPACE), spec.name + suffix).default
        implementation = partial(rule, operator, len(spec.operands))
        torch.library.register_vmap(full_name, implementation, lib=_LIBRARIES[NAMESPACE])


class _Stub:
    """A stub of an operator until the library that implements it is loaded."""

    def __init__(self, namespace: str, name: str, loss: str, key: str) -> None:
        self.namespace, self.name, self.loss, self.key = namespace, name, loss, key
        self.__name__ = f"{name}_stub"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Load what is missing, and call the operator again."""
        tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
        device = _device(tensors)
        with self._once():
            if self.key == _KERNELS:
                self._require_dense(tensors, device)
                load.load_loss(self.loss, device, strategies=self._strategies)
            elif device in DEVICES and not any(_is_traced(tensor) for tensor in tensors):
                # Both at once, so that they are built side by side.
                load.load_loss(self.loss, device, strategies=self._strategies)
            else:
                load.load_torch()
            operator = getattr(getattr(torch.ops, self.namespace), self.name).default
            # Where export or the compiler trace, Python remembers which kernel a key led to.
            operator._dispatch_cache.clear()
            return operator(*arguments, **named)

    @property
    def _strategies(self) -> bool:
        return self.namespace == BENCH_NAMESPACE

    def _require_dense(self, tensors: list[Tensor], device: str) -> None:
        other = [str(tensor.layout) for tensor in tensors if tensor.layout is not torch.strided]
        if other or device not in DEVICES:
            given = f"{other[0]} tensor" if other else f"tensor on {device}"
            raise NotImplementedError(
                f"{self.namespace}::{self.name} takes dense tensors on cpu or cuda, but got a "
                f"{given}"
            )

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Refuse a call after loading: the loaded library has not registered this operator."""
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


def _device(tensors: list[Tensor]) -> str:
    """Return the kind of device that the dispatcher goes by: no CPU, if there is another."""
    kinds = [tensor.device.type for tensor in tensors]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def _is_traced(tensor: Tensor) -> bool:
    """Tell a tensor that holds no data of its device: a fake one, or one in a dispatch mode."""
    if torch._C._len_torch_dispatch_stack():
        return True
    return torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python)


def _take_dtensors() -> None:
    """Have the operators take DTensors."""
    from . import sharding

    if not sharding.is_supported():
        return
    for spec in _SPECS:
        for suffix in sharding.SUFFIXES:
            operator = getattr(getattr(torch.ops, NAMESPACE), spec.name + suffix).default
            sharding.register(operator, suffix, len(spec.operands))


_calls = threading.local()
_LIBRARIES = {
    namespace: torch.library.Library(namespace, "DEF") for namespace in (NAMESPACE, BENCH_NAMESPACE)
}
for _row_spec in ROW_LOSSES.values():
    row_operators.define(_row_spec, _LIBRARIES[NAMESPACE], partial(_Stub, NAMESPACE))
for _spec in _SPECS:
    _define(_spec)
    for _name in (_spec.name, f"{_spec.name}_with_grad"):
        setattr(bound, _name, getattr(getattr(torch.ops, NAMESPACE), _name).default)
for _name in row_operators.bound_names():
    setattr(bound, _name, getattr(getattr(torch.ops, NAMESPACE), _name).default)
bound.incoming, bound.is_compiling = incoming, torch.compiler.is_compiling
when_imported("torch.distributed.tensor", _take_dtensors)
