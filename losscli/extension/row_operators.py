"""Defines the operators of a loss over rows.

For a loss ``NAME`` of rows ``input, target``, a mask and a parameter ``temperature``::

    losscli::NAME(Tensor input, Tensor target, Tensor? mask, str reduction, float temperature,
        int site=0) -> Tensor
    losscli::NAME_backward(Tensor grad_output, Tensor input, Tensor target, Tensor? mask,
        str reduction, float temperature, bool[2] wanted) -> (Tensor, Tensor)
    losscli::NAME_with_grad(Tensor input, Tensor target, Tensor? mask, str reduction,
        float temperature) -> (Tensor, Tensor)
    losscli::NAME_with_grad_(Tensor(a!) input, ...) -> Tensor: where the spec has it
    losscli::NAME_reference, losscli::NAME_backward_reference: the loss and the gradients composed
        of PyTorch's operators

The kernels have the first derivatives of the rows. All else is composed of the reference: under
``torch.func.vmap`` and other transforms, in forward mode, for second derivatives, and where another
operand wants a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from losscli.losses import ROW_LOSSES, RowSpec

_BATCHED, _COMPOSED = "FuncTorchBatched", "CompositeImplicitAutograd"
_KERNELS, _AUTOGRAD = "CompositeExplicitAutograd", "Autograd"


def schemas(spec: RowSpec) -> dict[str, str]:
    """Return the schema of each operator of a loss by its name in the namespace."""
    first, *others = (
        f"{'Tensor?' if operand.optional else 'Tensor'} {operand.name}" for operand in spec.operands
    )
    others += ["str reduction", *(f"float {parameter.name}" for parameter in spec.parameters)]
    one, name = ", ".join([first, *others]), spec.name
    results = _tensors(spec.gradients)
    backward = f"(Tensor grad_output, {one}, bool[{spec.gradients}] wanted) -> {results}"
    in_place = ", ".join([f"Tensor(a!) {spec.operands[0].name}", *others])
    return {
        name: f"({one}, int site=0) -> Tensor",
        f"{name}_backward": backward,
        f"{name}_with_grad": f"({one}) -> (Tensor, Tensor)",
        **({f"{name}_with_grad_": f"({in_place}) -> Tensor"} if spec.in_place else {}),
        f"{name}_reference": f"({one}) -> Tensor",
        f"{name}_backward_reference": backward,
    }


def _tensors(count: int) -> str:
    return f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"


def bound_names() -> list[str]:
    """Return the names of the operators that functions and modules call."""
    return [
        name
        for spec in ROW_LOSSES.values()
        for name in schemas(spec)
        if not name.removeprefix(spec.name).startswith("_backward")
    ]


def define(spec: RowSpec, library: torch.library.Library, stub: Callable[..., Any]) -> None:
    """Define the operators of a loss, with fake implementations, rules of vmap and stubs."""
    composed, fakes = _Composed(spec), _Fakes(spec)
    for name, schema in schemas(spec).items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        suffix = name.removeprefix(spec.name)
        if suffix.endswith("_reference"):
            library.impl(name, composed.of(suffix.removesuffix("_reference")), _COMPOSED)
            continue
        library.impl(name, stub(name, spec.name, _KERNELS), _KERNELS)
        library.impl(name, stub(name, spec.name, _AUTOGRAD), _AUTOGRAD)
        torch.library.register_fake(f"losscli::{name}", fakes.of(suffix), lib=library)
        if suffix in ("", "_with_grad_"):
            library.impl(name, composed.of(suffix), _BATCHED)
        else:
            operator = getattr(torch.ops.losscli, name).default
            rule = partial(_one_by_one, operator)
            torch.library.register_vmap(f"losscli::{name}", rule, lib=library)


class _Composed:
    """What the operators of a loss compute by PyTorch's operators."""

    def __init__(self, spec: RowSpec) -> None:
        self.spec, self.count = spec, len(spec.operands)

    def of(self, suffix: str) -> Callable[..., Any]:
        """Return the function of an operator."""
        functions: dict[str, Callable[..., Any]] = {
            "": self.loss,
            "_backward": self.backward,
            "_with_grad_": self.in_place,
        }
        return functions[suffix]

    def loss(self, *arguments: Any) -> Tensor:
        operands, reduction = arguments[: self.count], arguments[self.count]
        names = [parameter.name for parameter in self.spec.parameters]
        # The number of the module, if there is one, is left out.
        named = dict(zip(names, arguments[self.count + 1 :], strict=False))
        loss: Tensor = self.spec.reference(*operands, reduction=reduction, **named)
        return loss

    def backward(self, grad_output: Tensor, *arguments: Any) -> Any:
        *given, wanted = arguments
        rows, others = given[: self.spec.gradients], given[self.spec.gradients :]
        value, pull, *_ = torch.func.vjp(lambda *rows: self.loss(*rows, *others), *rows)
        found = pull(grad_output.to(value.dtype))
        results = tuple(
            gradient if wants else row.new_empty(0)
            for gradient, row, wants in zip(found, rows, wanted, strict=True)
        )
        return results if len(results) > 1 else results[0]

    def in_place(self, first: Tensor, *others: Any) -> Tensor:
        loss: Tensor
        operator = getattr(torch.ops.losscli, f"{self.spec.name}_with_grad")
        loss, gradient = operator(first, *others)
        first.copy_(gradient)
        return loss


class _Fakes:
    """Fake implementations of the operators of a loss."""

    def __init__(self, spec: RowSpec) -> None:
        self.spec, self.count = spec, len(spec.operands)

    def of(self, suffix: str) -> Callable[..., Any]:
        """Return the function of an operator."""
        functions: dict[str, Callable[..., Any]] = {
            "": self.loss,
            "_backward": self.backward,
            "_with_grad": self.with_grad,
            "_with_grad_": self.loss,
        }
        return functions[suffix]

    def loss(self, *arguments: Any, **_: Any) -> Tensor:
        first = arguments[0]
        dtype = first.dtype
        for role, operand in zip(self.spec.roles, arguments, strict=False):
            promotes = role in "rR" or (role in "wW" and "l" not in self.spec.roles)
            if promotes and operand is not None:
                dtype = torch.promote_types(dtype, operand.dtype)
        if self.spec.wide:
            dtype = torch.promote_types(dtype, torch.float32)
        shape: tuple[int, ...] = ()
        if arguments[self.count] == "none":
            shape = self.spec.rows_shape(first.shape)
        names = [parameter.name for parameter in self.spec.parameters]
        named = dict(zip(names, arguments[self.count + 1 :], strict=False))
        doubled = bool(self.spec.doubling and named[self.spec.doubling])
        empty: Tensor = first.new_empty((2, *shape) if doubled else shape, dtype=dtype)
        return empty

    def backward(self, grad_output: Tensor, *arguments: Any) -> Any:
        results = tuple(
            torch.empty_like(row) if wants else row.new_empty(0)
            for row, wants in zip(arguments[: self.spec.gradients], arguments[-1], strict=True)
        )
        return results if len(results) > 1 else results[0]

    def with_grad(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        return self.loss(*arguments), torch.empty_like(arguments[0])


def _one_by_one(operator: Any, info: Any, dims: Any, *arguments: Any) -> Any:
    """Call an operator for each sample of a batch: of derivatives, which vmap asks for rarely."""
    results = []
    for sample in range(info.batch_size):
        given = [
            argument
            if dim is None or not isinstance(argument, Tensor)
            else argument.select(dim, sample)
            for argument, dim in zip(arguments, dims, strict=True)
        ]
        results.append(operator(*given))
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * len(results[0])
