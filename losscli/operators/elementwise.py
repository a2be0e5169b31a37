"""Schemas, fake implementations and batching rules of an elementwise loss of ``count`` operands.

tests/data/golden/schemas.txt has some schemas. For ``torch.func.vmap`` a batch is one call with
reduction ``none``; each sample's elements are then reduced, in float32 for 16 bits.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from losscli.losses import Spec
from losscli.losses.kinds import not_floating

_NARROW = (torch.float16, torch.bfloat16)


def schemas(spec: Spec) -> dict[str, str]:
    """Return the operators' schemas by full name."""
    names, count, name = spec.names, len(spec.names), spec.name
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
            f"(Tensor grad_output, {one}, bool[{count}] wanted) -> {tensors(count)}"
        ),
        f"losscli::{name}_double_backward": (
            f"({seconds}, Tensor grad_output, {one}) -> {tensors(count + 1)}"
        ),
        f"losscli_bench::{name}": f"({one}, str strategy) -> Tensor",
    }


def tensors(count: int) -> str:
    """Return the type of several results."""
    return f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"


def wanted_of(rows: Sequence[Tensor], gradients: Iterable[Tensor], wanted: Sequence[bool]) -> Any:
    """Return the wanted gradients, and empty tensors for others."""
    results = tuple(
        gradient if wants else row.new_empty(0)
        for gradient, row, wants in zip(gradients, rows, wanted, strict=True)
    )
    return results if len(results) > 1 else results[0]


def _fake_loss(count: int, *arguments: Any, **_: Any) -> Tensor:
    elements = _fake_elements(arguments[:count])
    return elements if arguments[count] == "none" else elements.new_empty(())


def _fake_with_grad(count: int, *arguments: Any, **_: Any) -> tuple[Tensor, Tensor]:
    operands = arguments[:count]
    return _fake_loss(count, *arguments), _fake_gradient(operands[0], _fake_elements(operands))


def _fake_backward(count: int, *arguments: Any) -> Any:
    operands = arguments[1 : 1 + count]
    elements = _fake_elements(operands)
    return wanted_of(operands, (_fake_gradient(x, elements) for x in operands), arguments[-1])


def _fake_double_backward(count: int, *arguments: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in arguments[count : 2 * count + 1])


def _fake_elements(operands: Sequence[Tensor]) -> Tensor:
    elements: Tensor = functools.reduce(operator.add, operands)  # with PyTorch's layout
    if not elements.dtype.is_floating_point:
        raise TypeError(f"operands {not_floating(*(operand.dtype for operand in operands))}")
    return elements


def _fake_gradient(operand: Tensor, elements: Tensor) -> Tensor:
    # Dense, with the dimension order of the losses.
    strides = elements.stride()[elements.dim() - operand.dim() :]
    return torch.empty_like(operand.new_empty_strided(operand.shape, strides))


FAKES: dict[str, Callable[..., Any]] = {
    "": _fake_loss,
    "_with_grad": _fake_with_grad,
    "_backward": _fake_backward,
    "_double_backward": _fake_double_backward,
}


def arguments_of(
    operator: OpOverload, given: Sequence[Any], named: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return all arguments of a call by name, with defaults."""
    arguments = operator._schema.arguments
    found = dict(zip((each.name for each in arguments), given, strict=False)) | dict(named or {})
    return {each.name: found.get(each.name, each.default_value) for each in arguments}


def divisor_of(shape: Sequence[int], reduction: str) -> int:
    """Return the divisor of the sum over elements."""
    return max(math.prod(shape), 1) if reduction == "mean" else 1


def _vmap_loss(operator: OpOverload, count: int, info: Any, dims: Any, *arguments: Any) -> Any:
    reduction, *settings = arguments[count:]
    batch = _Batch(info.batch_size, arguments[:count], dims[:count])
    elements = operator(*batch.operands(reduction), "none", *settings)
    return batch.reduce(elements, reduction), 0


def _vmap_with_grad(operator: OpOverload, count: int, info: Any, dims: Any, *arguments: Any) -> Any:
    every = [*arguments_of(operator, arguments).values()]
    reduction, *settings, grad_output, factor = every[count:]
    batch = _Batch(info.batch_size, arguments[:count], dims[:count])
    if grad_output is None:
        factor /= divisor_of(batch.shape, reduction)
    else:
        grad_output = batch.incoming(grad_output, dims[len(every) - 2], reduction)
    elements, gradient = operator(
        *batch.operands(reduction, of_each_sample=[0]), "none", *settings, grad_output, factor
    )
    return (batch.reduce(elements, reduction), batch.as_operand(gradient, 0)), (0, 0)


def _vmap_backward(operator: OpOverload, count: int, info: Any, dims: Any, *arguments: Any) -> Any:
    reduction, *settings, wanted = arguments[1 + count :]
    batch = _Batch(info.batch_size, arguments[1 : 1 + count], dims[1 : 1 + count])
    grad_output = batch.incoming(arguments[0], dims[0], reduction)
    operands = batch.operands(of_each_sample=[k for k in range(count) if wanted[k]])
    gradients = operator(grad_output, *operands, "none", *settings, wanted)
    results = tuple(
        batch.as_operand(gradient, k) if wanted[k] else gradient
        for k, gradient in enumerate(gradients)
    )
    return results, tuple(0 if wants else None for wants in wanted)


def _vmap_double_backward(
    operator: OpOverload, count: int, info: Any, dims: Any, *arguments: Any
) -> Any:
    first = count + 1
    grad_output, reduction, *settings = arguments[count], *arguments[first + count :]
    batch = _Batch(info.batch_size, arguments[first : first + count], dims[first : first + count])
    vectors = [batch.aligned(arguments[k], dims[k], expand=True) for k in range(count)]
    incoming = batch.incoming(grad_output, dims[count], reduction)
    operands = batch.operands(of_each_sample=range(count))
    of_grad_output, *of_operands = operator(*vectors, incoming, *operands, "none", *settings)
    if reduction != "none":
        of_grad_output = batch.total(of_grad_output) / divisor_of(batch.shape, reduction)
        of_grad_output = of_grad_output.reshape(info.batch_size, *_shape(grad_output, dims[count]))
    results = (
        of_grad_output.to(grad_output.dtype),
        *(batch.as_operand(gradient, k) for k, gradient in enumerate(of_operands)),
    )
    return results, (0,) * len(results)


RULES: dict[str, Callable[..., Any]] = {
    "": _vmap_loss,
    "_with_grad": _vmap_with_grad,
    "_backward": _vmap_backward,
    "_double_backward": _vmap_double_backward,
}


class _Batch:
    def __init__(self, size: int, operands: Sequence[Tensor], dims: Sequence[int | None]) -> None:
        self.size = size
        self.given, self.dims = operands, dims
        self.shapes = [_shape(*of) for of in zip(operands, dims, strict=True)]
        self.shape = torch.broadcast_shapes(*self.shapes)
        self.dtype = promoted([*zip(map(_dtype, operands), map(bool, self.shapes), strict=True)])

    def operands(self, reduction: str = "none", of_each_sample: Sequence[int] = ()) -> list[Tensor]:
        """Return the operands for one call; ``of_each_sample`` need a gradient per sample."""
        found = [
            self.aligned(operand, dim, expand=k in of_each_sample)
            for k, (operand, dim) in enumerate(zip(self.given, self.dims, strict=True))
        ]
        is_summed = reduction != "none" and self.dtype in _NARROW
        dtype = torch.float32 if is_summed else self.dtype
        of_found = promoted([(_dtype(operand), operand.dim() > 0) for operand in found])
        if of_found != dtype and torch.promote_types(of_found, dtype) == dtype:
            # One operand of a wider dtype promotes the others: the smallest.
            floating = [k for k, x in enumerate(found) if x.dim() > 0 and x.is_floating_point()]
            smallest = min(floating, key=lambda k: self.given[k].numel())
            found[smallest] = found[smallest].to(dtype)
        return found

    def aligned(self, tensor: Tensor, dim: int | None, *, expand: bool = False) -> Tensor:
        """Return a batch with samples first and the loss's number of dimensions after."""
        if dim is None and not expand:
            return tensor
        tensor = tensor[None] if dim is None else tensor.movedim(dim, 0)
        missing = len(self.shape) + 1 - tensor.dim()
        tensor = tensor[(slice(None), *(None,) * missing)]
        return tensor.expand(self.size, *tensor.shape[1:])

    def incoming(self, grad_output: Tensor, dim: int | None, reduction: str) -> Tensor:
        """Return each element's grad_output."""
        if reduction == "mean":
            # In float64, so that it is rounded once.
            grad_output = grad_output.double() / divisor_of(self.shape, reduction)
        grad_output = grad_output[None] if dim is None else grad_output.movedim(dim, 0)
        if reduction != "none" or math.prod(grad_output.shape[1:]) == 1:
            grad_output = grad_output.reshape(grad_output.shape[0], *(1,) * len(self.shape))
        return grad_output.expand(self.size, *self.shape)

    def total(self, elements: Tensor) -> Tensor:
        return elements.sum(tuple(range(1, elements.dim()))) if self.shape else elements

    def reduce(self, elements: Tensor, reduction: str) -> Tensor:
        if reduction != "none" and self.shape:
            inner = tuple(range(1, elements.dim()))
            elements = elements.sum(inner) if reduction == "sum" else elements.mean(inner)
        return elements.to(self.dtype)

    def as_operand(self, gradient: Tensor, k: int) -> Tensor:
        """Return a batch of gradients in an operand's shape and dtype."""
        return gradient.reshape(self.size, *self.shapes[k]).to(self.given[k].dtype)


def _shape(tensor: Tensor, dim: int | None) -> torch.Size:
    if dim is None:
        return tensor.shape
    return torch.Size((*tensor.shape[:dim], *tensor.shape[dim + 1 :]))


def _dtype(operand: Tensor) -> torch.dtype:
    if operand.dtype in _NARROW and torch.is_autocast_enabled(operand.device.type):
        return torch.float32
    return operand.dtype


def promoted(of: Sequence[tuple[torch.dtype, bool]]) -> torch.dtype:
    """Return the promoted dtype of tensors, each with or without dimensions."""
    if len({dtype for dtype, _ in of}) == 1:
        return of[0][0]
    groups = [[dtype for dtype, has in of if has is wanted] for wanted in (True, False)]
    types = [functools.reduce(torch.promote_types, group) for group in groups if group]
    if len(types) == 1:
        return types[0]
    like = torch.empty(1, dtype=types[0], device="meta")
    return torch.result_type(like, torch.empty((), dtype=types[1], device="meta"))
