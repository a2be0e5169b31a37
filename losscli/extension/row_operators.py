"""Defines the operators of a loss over rows.

For a loss ``NAME``, with ``SETTINGS = str reduction, int ignore_index, float label_smoothing,
float temperature, float softcap, float z_loss``::

    losscli::NAME(Tensor input, Tensor target, Tensor? weight, SETTINGS, int site=0) -> Tensor
    losscli::NAME_backward(Tensor grad_output, Tensor input, Tensor target, Tensor? weight,
        SETTINGS) -> Tensor
    losscli::NAME_with_grad(Tensor input, Tensor target, Tensor? weight, SETTINGS)
        -> (Tensor, Tensor)
    losscli::NAME_with_grad_(Tensor(a!) input, Tensor target, Tensor? weight, SETTINGS) -> Tensor
    losscli::NAME_reference, losscli::NAME_backward_reference: the loss and the gradient of the
        input composed of PyTorch's operators

The kernels have the first derivative of the input. All else is composed: under ``torch.func.vmap``
and other transforms, in forward mode, for second derivatives, and where the target or the weight
wants a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from losscli.losses import ROW_LOSSES, RowLossSpec

_BATCHED, _COMPOSED = "FuncTorchBatched", "CompositeImplicitAutograd"
_KERNELS, _AUTOGRAD = "CompositeExplicitAutograd", "Autograd"


def schemas(spec: RowLossSpec) -> dict[str, str]:
    """Return the schema of each operator of a loss by its name in the namespace."""
    parameters = "".join(f", float {parameter.name}" for parameter in spec.parameters)
    others = f"Tensor target, Tensor? weight, str reduction, int ignore_index{parameters}"
    one, name = f"Tensor input, {others}", spec.name
    return {
        name: f"({one}, int site=0) -> Tensor",
        f"{name}_backward": f"(Tensor grad_output, {one}) -> Tensor",
        f"{name}_with_grad": f"({one}) -> (Tensor, Tensor)",
        f"{name}_with_grad_": f"(Tensor(a!) input, {others}) -> Tensor",
        f"{name}_reference": f"({one}) -> Tensor",
        f"{name}_backward_reference": f"(Tensor grad_output, {one}) -> Tensor",
    }


def bound_names() -> list[str]:
    """Return the names of the operators that functions and modules call."""
    return [
        f"{name}{suffix}" for name in ROW_LOSSES for suffix in ("", "_with_grad", "_with_grad_")
    ]


def define(spec: RowLossSpec, library: torch.library.Library, stub: Callable[..., Any]) -> None:
    """Define the operators of a loss, with fake implementations, rules of vmap and stubs."""
    composed = _composed(spec)
    for name, schema in schemas(spec).items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        suffix = name.removeprefix(spec.name)
        if suffix.endswith("_reference"):
            library.impl(name, composed[suffix.removesuffix("_reference")], _COMPOSED)
            continue
        library.impl(name, stub(name, spec.name, _KERNELS), _KERNELS)
        library.impl(name, stub(name, spec.name, _AUTOGRAD), _AUTOGRAD)
        library.impl(name, composed[suffix], _BATCHED)
        torch.library.register_fake(f"losscli::{name}", _FAKES[suffix], lib=library)


def _composed(spec: RowLossSpec) -> dict[str, Callable[..., Any]]:
    """Return what each operator computes by PyTorch's operators, by the operators' suffixes."""

    def loss(
        input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, *settings: Any
    ) -> Tensor:
        # The number of the module, if there is one, is left out.
        named = dict(zip(spec.settings, settings, strict=False))
        return spec.reference(input, target, weight, reduction=reduction, **named)

    def backward(
        grad_output: Tensor,
        input: Tensor,
        target: Tensor,
        weight: Tensor | None,
        reduction: str,
        *settings: Any,
    ) -> Tensor:
        named = dict(zip(spec.settings, settings, strict=True))
        return spec.gradient(grad_output, input, target, weight, reduction=reduction, **named)

    def with_grad(input: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        value = loss(input, *others)
        return value, backward(torch.ones_like(value), input, *others)

    def with_grad_(input: Tensor, *others: Any) -> Tensor:
        value, gradient = with_grad(input, *others)
        input.copy_(gradient)
        return value

    return {"": loss, "_backward": backward, "_with_grad": with_grad, "_with_grad_": with_grad_}


def _fake_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, *_: Any, **__: Any
) -> Tensor:
    dtype = input.dtype
    if input.dim() == target.dim():
        others = [target] if weight is None else [target, weight]
        for other in others:
            dtype = torch.promote_types(dtype, other.dtype) if other.is_floating_point() else dtype
    rows = (*input.shape[:1], *input.shape[2:]) if input.dim() > 1 else ()
    return input.new_empty(rows if reduction == "none" else (), dtype=dtype)


def _fake_backward(grad_output: Tensor, input: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(input)


def _fake_with_grad(input: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _fake_loss(input, *others), torch.empty_like(input)


_FAKES: dict[str, Callable[..., Any]] = {
    "": _fake_loss,
    "_backward": _fake_backward,
    "_with_grad": _fake_with_grad,
    "_with_grad_": _fake_loss,
}
