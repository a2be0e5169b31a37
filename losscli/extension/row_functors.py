"""Defines the operators of the losses over rows that are made from functors.

For a loss ``NAME``, with ``SETTINGS = str reduction, float temperature`` and its own parameters::

    losscli::NAME(Tensor input, Tensor target, Tensor? mask, SETTINGS) -> Tensor
    losscli::NAME_backward(Tensor grad_output, Tensor input, Tensor target, Tensor? mask, SETTINGS,
        bool[2] wanted) -> (Tensor, Tensor)

The kernels have values and first derivatives; a gradient that is not wanted comes back without
elements. All else is composed of PyTorch's operators: second derivatives, forward mode and
``torch.func``'s transforms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from losscli.errors import BuildError
from losscli.losses import FUNCTOR_LOSSES, RowFunctorSpec
from losscli.losses.row_functors import counted, total_of

from . import load

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""In the order of csrc/core/dtype.h."""
PROVEN = ["cpu"]
"""The devices whose kernels have passed their tests. CUDA's compile, but no GPU has run them yet: a
tensor there takes PyTorch's operators, but in the tests that are for a GPU."""


class _Call(ctypes.Structure):
    """``Call`` of csrc/rowfunctors/call.h."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("classes", ctypes.c_int64),
        ("operands", ctypes.c_void_p * 2),
        ("strides", ctypes.c_int64 * 2),
        ("tokens", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("values", ctypes.c_void_p * 2),
        ("incoming", ctypes.c_void_p * 2),
        ("gradients", ctypes.c_void_p * 2),
        ("temperature", ctypes.c_double),
        ("parameters", ctypes.c_double * 2),
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


Pointers = Sequence[Tensor | None]


def launch(
    name: str,
    operands: Sequence[Tensor],
    temperature: float,
    parameters: Sequence[float],
    *,
    tokens: Tensor | None = None,
    mask: Tensor | None = None,
    values: Pointers = (),
    incoming: Pointers = (),
    gradients: Pointers = (),
) -> None:
    """Run the kernels of a loss on operands from :func:`as_rows`; all else has to be dense."""
    first = operands[0]
    if not first.shape[0]:
        return
    call = _Call(rows=first.shape[0], classes=first.shape[1], temperature=temperature)
    call.strides[: len(operands)] = [operand.stride(0) for operand in operands]
    call.parameters[: len(parameters)] = parameters
    call.dtype = DTYPES.index(first.dtype)
    call.tokens, call.mask = _address(tokens), _address(mask)
    several = {"operands": operands, "values": values, "incoming": incoming, "gradients": gradients}
    for field, tensors in several.items():
        getattr(call, field)[: len(tensors)] = [_address(tensor) for tensor in tensors]
    if first.is_cuda:
        call.device = first.device.index
        call.stream = torch.cuda.current_stream(first.device).cuda_stream
    wrong = load.row_functor(name, first.device.type)(ctypes.byref(call))
    if wrong:
        raise BuildError(f"{name}: {wrong.decode(errors='replace')}")


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def as_rows(logits: Tensor, dtype: torch.dtype) -> Tensor:
    """Return logits as a matrix with the classes of a row side by side, copied where need be."""
    logits = logits.to(dtype)
    rows = logits.reshape(logits.shape[:-1].numel(), logits.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _check(name: str, input: Tensor, target: Tensor, mask: Tensor | None) -> torch.dtype:
    """Return the dtype of the loss of two sets of logits."""
    if not input.dim() or input.shape != target.shape:
        raise RuntimeError(
            f"{name}: input and target must be logits of one shape (..., C), but have shapes "
            f"{tuple(input.shape)} and {tuple(target.shape)}"
        )
    if mask is not None and (mask.dtype != torch.bool or mask.shape != input.shape[:-1]):
        raise RuntimeError(
            f"{name}: mask must be bool of shape {tuple(input.shape[:-1])}, but is {mask.dtype} of "
            f"shape {tuple(mask.shape)}"
        )
    for other in (target, mask):
        if other is not None and other.device != input.device:
            raise RuntimeError(
                f"{name}: all tensors must be on one device, but they are on {input.device} and "
                f"{other.device}"
            )
    dtype = torch.promote_types(input.dtype, target.dtype)
    if dtype not in DTYPES:
        raise TypeError(f"{name} takes float32, float64, float16 or bfloat16, but got {dtype}")
    return dtype


def _dense_mask(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous()


def is_proven(tensor: Tensor) -> bool:
    """Tell whether the kernels for a tensor's device may be used."""
    return tensor.device.type in PROVEN


def is_composed(tensors: Sequence[Tensor | None]) -> bool:
    """Tell a call that takes PyTorch's operators: in a transform, or without proven kernels."""
    if not all(tensor is None or is_proven(tensor) for tensor in tensors):
        return True
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return forward_ad._current_level >= 0 and any(
        tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None
        for tensor in tensors
    )


def wants_grad(tensors: Sequence[Tensor | None]) -> bool:
    """Tell whether autograd has to remember a call."""
    return torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in tensors
    )


def define(spec: RowFunctorSpec, library: torch.library.Library) -> None:
    """Define the operators of a distance between two sets of logits."""
    name = spec.name
    parameters = "".join(f", float {parameter.name}" for parameter in spec.parameters)
    one = f"Tensor input, Tensor target, Tensor? mask, str reduction{parameters}"
    schemas = {
        name: f"({one}) -> Tensor",
        f"{name}_backward": (f"(Tensor grad_output, {one}, bool[2] wanted) -> (Tensor, Tensor)"),
    }
    for operator, schema in schemas.items():
        library.define(operator + schema, tags=(torch.Tag.pt2_compliant_tag,))
    forward_operator = getattr(torch.ops.losscli, name).default
    backward_operator = getattr(torch.ops.losscli, f"{name}_backward").default

    def loss(
        input: Tensor, target: Tensor, mask: Tensor | None, reduction: str, *settings: float
    ) -> Tensor:
        dtype = _check(name, input, target, mask)
        if not is_proven(input):  # in inference mode, which autograd does not see
            return spec.reference(input, target, mask, reduction, *settings)
        wide = torch.promote_types(dtype, torch.float32)
        rows = input.new_empty(input.shape[:-1], dtype=wide)
        operands = [as_rows(logits, dtype) for logits in (input, target)]
        mask = _dense_mask(mask)
        launch(name, operands, settings[0], settings[1:], mask=mask, values=(rows,))
        return total_of(rows, mask, reduction).to(dtype)

    def backward(
        grad_output: Tensor,
        input: Tensor,
        target: Tensor,
        mask: Tensor | None,
        reduction: str,
        *settings: Any,
    ) -> tuple[Tensor, Tensor]:
        *numbers, wanted = settings
        dtype = _check(name, input, target, mask)
        mask = _dense_mask(mask)
        incoming = grad_output.to(torch.promote_types(dtype, torch.float32))
        if reduction == "mean":
            incoming = incoming / counted(input.shape[:-1].numel(), mask)
        incoming = incoming.expand(input.shape[:-1]).contiguous()
        gradients = [
            torch.empty(input.shape, dtype=dtype, device=input.device) if each else None
            for each in wanted
        ]
        operands = [as_rows(logits, dtype) for logits in (input, target)]
        if input.numel():
            launch(
                name,
                operands,
                numbers[0],
                numbers[1:],
                mask=mask,
                incoming=(incoming,),
                gradients=gradients,
            )
        first, second = (
            logits.new_empty(0) if gradient is None else gradient.to(logits.dtype)
            for gradient, logits in zip(gradients, (input, target), strict=True)
        )
        return first, second

    def fake_loss(
        input: Tensor, target: Tensor, mask: Tensor | None, reduction: str, *settings: float
    ) -> Tensor:
        dtype = torch.promote_types(input.dtype, target.dtype)
        shape = input.shape[:-1] if reduction == "none" else ()
        return input.new_empty(shape, dtype=dtype)

    def fake_backward(
        grad_output: Tensor, input: Tensor, target: Tensor, *settings: Any
    ) -> tuple[Tensor, Tensor]:
        first, second = (
            torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
            if wanted
            else logits.new_empty(0)
            for logits, wanted in zip((input, target), settings[-1], strict=True)
        )
        return first, second

    def composed_backward(
        grad_output: Tensor, input: Tensor, target: Tensor, *settings: Any
    ) -> tuple[Tensor, Tensor]:
        *others, wanted = settings

        def function(input: Tensor, target: Tensor) -> Tensor:
            return spec.reference(input, target, *others)

        pull: Any = torch.func.vjp(function, input, target)[1]
        first, second = (
            gradient if each else gradient.new_empty(0)
            for gradient, each in zip(pull(grad_output), wanted, strict=True)
        )
        return first, second

    class Differentiated(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Tensor:
            input, target, mask, *ctx.settings = arguments
            ctx.save_for_backward(input, target, mask)
            with torch._C._AutoDispatchBelowAutograd():
                value: Tensor = forward_operator(*arguments)
            return value

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
            wanted = list(ctx.needs_input_grad[:2])
            gradients = backward_operator(grad_output, *ctx.saved_tensors, *ctx.settings, wanted)
            kept = [each if want else None for each, want in zip(gradients, wanted, strict=True)]
            return (*kept, None, *[None for _ in ctx.settings])

    def loss_autograd(*arguments: Any) -> Tensor:
        operands = arguments[:2]
        if is_composed(operands):
            return spec.reference(*arguments)
        if wants_grad(operands):
            value: Tensor = Differentiated.apply(*arguments)  # type: ignore[no-untyped-call]
            return value
        with torch._C._AutoDispatchBelowAutograd():
            computed: Tensor = forward_operator(*arguments)
        return computed

    def backward_autograd(*arguments: Any) -> tuple[Tensor, Tensor]:
        operands = arguments[:3]
        if is_composed(operands) or wants_grad(operands):
            return composed_backward(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            gradients: tuple[Tensor, Tensor] = backward_operator(*arguments)
        return gradients

    register(library, name, loss, loss_autograd, spec.reference, fake_loss)
    register(
        library, f"{name}_backward", backward, backward_autograd, composed_backward, fake_backward
    )


def register(
    library: torch.library.Library,
    name: str,
    kernels: Callable[..., Any],
    autograd: Callable[..., Any],
    composed: Callable[..., Any],
    fake: Callable[..., Any],
) -> None:
    """Register what a defined operator does on devices, above them, in transforms and on fakes."""
    for key in ("CPU", "CUDA"):
        library.impl(name, kernels, key)
    library.impl(name, autograd, "Autograd")
    library.impl(name, composed, "FuncTorchBatched")
    torch.library.register_fake(f"losscli::{name}", fake, lib=library)


def bound_names() -> list[str]:
    """Return the names of the operators that functions and modules call."""
    return list(FUNCTOR_LOSSES)
