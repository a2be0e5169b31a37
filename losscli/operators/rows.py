"""Schemas, fake implementations and compositions of a row-wise loss.

tests/data/golden/schemas.txt has some schemas. ``NAME_with_grad_`` returns float32 for 16 bits.
``NAME_of_part`` returns the numbers of a part of each row; it is not differentiable.

Kernels compute first derivatives of rows, and references everything else: transforms such as
``torch.func.vmap``, forward mode, second derivatives, and gradients of other operands.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from losscli.losses import RowSpec, Spec
from losscli.losses.formulas import widened
from losscli.losses.kinds import not_floating
from losscli.losses.shapes import remedy

from .elementwise import tensors, wanted_of


def schemas(spec: RowSpec) -> dict[str, str]:
    """Return the operators' schemas by full name."""
    first, *others = (
        f"{'Tensor?' if operand.optional else 'Tensor'} {operand.name}" for operand in spec.operands
    )
    others += ["str reduction", *(f"float {parameter.name}" for parameter in spec.parameters)]
    one, name = ", ".join([first, *others]), spec.name
    results = tensors(spec.gradients)
    backward = f"(Tensor grad_output, {one}, bool[{spec.gradients}] wanted) -> {results}"
    in_place = ", ".join([f"Tensor(a!) {spec.operands[0].name}", *others])
    return {
        f"losscli::{name}": f"({one}, int site=0) -> Tensor",
        f"losscli::{name}_backward": backward,
        f"losscli::{name}_with_grad": f"({one}) -> (Tensor, Tensor)",
        **({f"losscli::{name}_with_grad_": f"({in_place}) -> Tensor"} if spec.in_place else {}),
        **({f"losscli::{name}_of_part": f"({one}) -> Tensor"} if spec.part_values else {}),
        f"losscli::{name}_reference": f"({one}) -> Tensor",
        f"losscli::{name}_backward_reference": backward,
    }


def settings_of(spec: Spec, arguments: Sequence[Any]) -> dict[str, Any]:
    """Return a call's parameters by name."""
    names = [parameter.name for parameter in spec.parameters]
    return dict(zip(names, arguments[len(spec.operands) + 1 :], strict=False))


def _composed_loss(spec: RowSpec, *arguments: Any) -> Tensor:
    *operands, reduction = arguments[: len(spec.operands) + 1]
    return spec.reference(*operands, reduction=reduction, **settings_of(spec, arguments))


def _composed_backward(spec: RowSpec, grad_output: Tensor, *arguments: Any) -> Any:
    *given, wanted = arguments
    rows, others = given[: spec.gradients], given[spec.gradients :]
    value, pull, *_ = torch.func.vjp(lambda *rows: _composed_loss(spec, *rows, *others), *rows)
    return wanted_of(rows, pull(grad_output.to(value.dtype)), wanted)


def _composed_in_place(spec: RowSpec, first: Tensor, *others: Any) -> Tensor:
    loss: Tensor
    loss, gradient = getattr(torch.ops.losscli, f"{spec.name}_with_grad")(first, *others)
    first.copy_(gradient)
    return loss.to(widened(loss.dtype))


def checked(spec: RowSpec, operands: Sequence[Tensor | None]) -> torch.dtype:
    """Return the loss's dtype; raise for operands that no kernel accepts."""
    first, said = operands[0], spec.names[0]
    assert first is not None
    dtype = first.dtype
    for role, tensor in zip(spec.roles, operands, strict=True):
        if tensor is not None and (role in "rR" or (role in "wW" and "l" not in spec.roles)):
            dtype = torch.promote_types(dtype, tensor.dtype)
    if not dtype.is_floating_point:
        raise TypeError(f"{spec.name}: {said} {not_floating(dtype)}")
    for operand, tensor in zip(spec.operands, operands, strict=True):
        if tensor is None:
            continue
        if tensor.device != first.device:
            raise RuntimeError(
                f"{spec.name}: {said} and {operand.name} must be on one device, but are on "
                f"{first.device} and {tensor.device}; move one with .to()"
            )
        due = operand.shape(first.shape)
        # A compiler's sizes may be symbolic.
        if type(tensor) is Tensor and tensor.shape != due:
            raise RuntimeError(
                f"{spec.name}: {operand.name} must have shape {list(due)}, but has "
                f"{list(tensor.shape)}{remedy(operand.name, tensor.shape, due)}"
            )
    return widened(dtype) if spec.wide else dtype


def _fake_loss(spec: RowSpec, *arguments: Any, **_: Any) -> Tensor:
    dtype, first = checked(spec, arguments[: len(spec.operands)]), arguments[0]
    shape = spec.rows_shape(first.shape) if arguments[len(spec.operands)] == "none" else ()
    if further := settings_of(spec, arguments).get(spec.doubling):
        shape = (1 + int(further), *shape)
    empty: Tensor = first.new_empty(shape, dtype=dtype)
    return empty


def _fake_of_part(spec: RowSpec, *arguments: Any) -> Tensor:
    loss = _fake_loss(spec, *arguments)
    return loss.new_empty((spec.part_values, *loss.shape), dtype=widened(loss.dtype))


def _fake_in_place(spec: RowSpec, *arguments: Any) -> Tensor:
    loss = _fake_loss(spec, *arguments)
    return loss.to(widened(loss.dtype))


def _fake_backward(spec: RowSpec, grad_output: Tensor, *arguments: Any) -> Any:
    rows = arguments[: spec.gradients]
    return wanted_of(rows, map(torch.empty_like, rows), arguments[-1])


def _fake_with_grad(spec: RowSpec, *arguments: Any) -> tuple[Tensor, Tensor]:
    return _fake_loss(spec, *arguments), torch.empty_like(arguments[0])


COMPOSED: dict[str, Callable[..., Any]] = {
    "": _composed_loss,
    "_backward": _composed_backward,
    "_with_grad_": _composed_in_place,
}
FAKES: dict[str, Callable[..., Any]] = {
    "": _fake_loss,
    "_backward": _fake_backward,
    "_with_grad": _fake_with_grad,
    "_with_grad_": _fake_in_place,
    "_of_part": _fake_of_part,
}


def one_by_one(operator: Any, info: Any, dims: Any, *arguments: Any) -> Any:
    """Call an operator per sample, for derivatives, which vmap rarely needs."""
    results = []
    for sample in range(info.batch_size):
        given = [
            each.select(dim, sample) if isinstance(each, Tensor) and dim is not None else each
            for each, dim in zip(arguments, dims, strict=True)
        ]
        results.append(operator(*given))
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(map(torch.stack, zip(*results, strict=True))), (0,) * len(results[0])
