"""Runs operators of ``count`` operands on DTensors: each rank on its shards, with partial sums.

An operand that broadcasts along a sharded dimension is replicated, and its gradient a partial sum.
A mean is one of shard means weighted by their share of elements, so shards may be uneven. A
sharding strategy of torch cannot do this: it knows no shard's size and changes no arguments.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._redistribute import redistribute_local_tensor

from losscli.losses import LossSpec

from .elementwise import arguments_of, divisor_of


def _handle(
    rule: Callable[..., Any], count: int, operator: OpOverload, arguments: Any, named: Any
) -> Any:
    every = [*arguments_of(operator, arguments, named).values()]
    # The outputs' global shapes, from meta tensors.
    forms = operator(*map(_meta, every))
    with torch.no_grad():
        return rule(operator, count, every, forms)


def _loss(operator: OpOverload, count: int, arguments: list[Any], form: Tensor) -> DTensor:
    plan = _Plan(operator, arguments[:count])
    reduction, *settings = arguments[count:]
    value = operator(*plan.locals, plan.reduction(reduction), *settings)
    return plan.loss(value, reduction, form)


def _with_grad(
    operator: OpOverload, count: int, arguments: list[Any], forms: Sequence[Tensor]
) -> tuple[DTensor, DTensor]:
    plan = _Plan(operator, arguments[:count])
    reduction, *settings, grad_output, factor = arguments[count:]
    if grad_output is not None:
        whole = reduction != "none" or grad_output.numel() == 1
        grad_output = plan.local(grad_output, plan.whole if whole else plan.of_elements)
    if reduction == "mean":
        factor *= plan.weight
    value, gradient = operator(
        *plan.locals, plan.reduction(reduction), *settings, grad_output, factor
    )
    return plan.loss(value, reduction, forms[0]), plan.gradient(gradient, 0, forms[1])


def _backward(operator: OpOverload, count: int, arguments: list[Any], forms: Any) -> Any:
    plan = _Plan(operator, arguments[1 : 1 + count])
    reduction, *settings, wanted = arguments[1 + count :]
    settings = ["none" if reduction == "none" else "sum", *settings, wanted]
    gradients = operator(plan.incoming(arguments[0], reduction), *plan.locals, *settings)
    return tuple(
        plan.gradient(gradient, k, form) if wanted[k] else plan.wrap(gradient, form)
        for k, (gradient, form) in enumerate(zip(gradients, forms, strict=True))
    )


def _double_backward(
    operator: OpOverload, count: int, arguments: list[Any], forms: Sequence[Tensor]
) -> tuple[DTensor, ...]:
    vectors, (grad_output, *rest) = arguments[:count], arguments[count:]
    plan = _Plan(operator, rest[:count])
    reduction, *settings = rest[count:]
    vectors = [plan.local(vector, plan.placements[k]) for k, vector in enumerate(vectors)]
    incoming = plan.incoming(grad_output, reduction)
    settings = ["none" if reduction == "none" else "sum", *settings]
    of_grad_output, *of_operands = operator(*vectors, incoming, *plan.locals, *settings)
    if reduction == "none":
        first = plan.wrap(of_grad_output, forms[0], plan.of_elements)
    else:
        of_grad_output = (of_grad_output / divisor_of(plan.shape, reduction)).to(forms[0].dtype)
        first = plan.wrap(of_grad_output, forms[0], plan.of_sums)
    return first, *(
        plan.gradient(gradient, k, form)
        for k, (gradient, form) in enumerate(zip(of_operands, forms[1:], strict=True))
    )


_RULES: dict[str, Callable[..., Any]] = {
    "": _loss,
    "_with_grad": _with_grad,
    "_backward": _backward,
    "_double_backward": _double_backward,
}


class _Plan:
    def __init__(self, operator: OpOverload, operands: Sequence[Tensor]) -> None:
        self.operator = operator
        meshes = [operand.device_mesh for operand in operands if isinstance(operand, DTensor)]
        if not meshes or any(mesh != meshes[0] for mesh in meshes):
            raise NotImplementedError(f"{operator}: the DTensors must be on one device mesh")
        self.mesh = meshes[0]
        self.shape = torch.broadcast_shapes(*(operand.shape for operand in operands))
        largest_first = sorted(operands, key=lambda operand: -operand.numel())
        sharded = [self._sharded(largest_first, of) for of in range(self.mesh.ndim)]
        # Placements of elements, of sums over them, and of replicated tensors.
        self.of_elements = [Replicate() if dim is None else Shard(dim) for dim in sharded]
        self.of_sums = [Replicate() if dim is None else Partial() for dim in sharded]
        self.whole = [Replicate()] * self.mesh.ndim
        self.placements = [
            [Replicate() if dim is None else self._of_operand(operand, dim) for dim in sharded]
            for operand in operands
        ]
        self.locals = [*map(self.local, operands, self.placements)]
        of_shard = torch.broadcast_shapes(*(tensor.shape for tensor in self.locals))
        self.weight = math.prod(of_shard) / divisor_of(self.shape, "mean")
        """This rank's fraction of the elements."""

    def _sharded(self, operands: Sequence[Tensor], of: int) -> int | None:
        for operand in operands:
            placement = operand.placements[of] if isinstance(operand, DTensor) else None
            if type(placement) is Shard:
                dim = placement.dim + len(self.shape) - operand.dim()
                if operand.shape[placement.dim] == self.shape[dim]:
                    return dim
        return None

    def _of_operand(self, operand: Tensor, dim: int) -> Placement:
        own = dim - len(self.shape) + operand.dim()
        has = own >= 0 and operand.shape[own] == self.shape[dim]
        return Shard(own) if has else Replicate()

    def local(self, tensor: Tensor, placements: Sequence[Placement]) -> Tensor:
        if isinstance(tensor, DTensor):
            # Below autograd, because DTensor's methods would record.
            spec = tensor._spec
            if spec.placements == tuple(placements):
                return tensor._local_tensor
            target = DTensorSpec(self.mesh, tuple(placements), tensor_meta=spec.tensor_meta)
            return redistribute_local_tensor(tensor._local_tensor, spec, target)
        if tensor.dim() > 0:
            raise RuntimeError(
                f"{self.operator}: where one tensor is a DTensor, all but numbers must be, not a "
                f"torch.Tensor of shape {list(tensor.shape)}; distribute it with distribute_tensor"
            )
        return tensor

    def reduction(self, reduction: str) -> str:
        """Return a shard's reduction; an empty shard's mean becomes a sum of 0."""
        left_out = reduction == "mean" and self.weight == 0 and math.prod(self.shape) > 0
        return "sum" if left_out else reduction

    def incoming(self, grad_output: Tensor, reduction: str) -> Tensor:
        if reduction == "none":
            return self.local(grad_output, self.of_elements)
        grad_output = self.local(grad_output, self.whole)
        if reduction == "mean":
            # In float64, so that it is rounded once.
            grad_output = grad_output.double() / divisor_of(self.shape, reduction)
        return grad_output

    def loss(self, value: Tensor, reduction: str, form: Tensor) -> DTensor:
        if reduction == "none":
            return self.wrap(value, form, self.of_elements)
        if reduction == "mean" and self.weight not in (0, 1):
            value = value * self.weight
        return self.wrap(value, form, self.of_sums)

    def gradient(self, gradient: Tensor, k: int, form: Tensor) -> DTensor:
        """Return a gradient, a partial sum if its operand broadcasts along a sharded dimension."""
        pairs = zip(self.placements[k], self.of_sums, strict=True)
        placements = [sums if own == Replicate() else own for own, sums in pairs]
        return self.wrap(gradient, form, placements)

    def wrap(
        self, local: Tensor, form: Tensor, placements: Sequence[Placement] | None = None
    ) -> DTensor:
        """Return a DTensor with a meta tensor's global shape."""
        meta = TensorMeta(form.shape, form.stride(), form.dtype)
        spec = DTensorSpec(self.mesh, tuple(placements or self.whole), tensor_meta=meta)
        return DTensor(local, spec, requires_grad=False)


def _meta(argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    return torch.empty_strided(
        argument.shape, argument.stride(), dtype=argument.dtype, device="meta"
    )


def register(specs: Iterable[LossSpec]) -> None:
    """Make DTensors take the operators of these losses."""
    # Of a torch that does not support it, DTensor raises its error.
    handlers = getattr(getattr(DTensor, "_op_dispatcher", None), "_custom_op_handlers", {})
    for spec, (suffix, rule) in itertools.product(specs, _RULES.items()):
        operator = getattr(torch.ops.losscli, spec.name + suffix).default
        handlers[operator] = partial(_handle, rule, len(spec.operands))
