"""Logits of a linear layer that are computed only if something reads them."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from losscli.linear.operands import is_autocast
from losscli.linear.products import Layer

_aten = torch.ops.aten


class LazyLogits(Tensor):
    """Logits without memory until an operator reads them; losses that know them take ``layer``."""

    layer: Layer
    """With its autograd history."""
    _compute: Callable[[], Tensor]
    _value: Tensor | None

    @staticmethod
    def __new__(
        cls, compute: Callable[[], Tensor], shape: Sequence[int], dtype: torch.dtype, like: Tensor
    ) -> Self:
        """Describe what ``compute`` will return, on the device of ``like``."""
        self: Self = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=like.device)
        self._compute, self._value = compute, None
        return self

    def value(self) -> Tensor:
        """Return the logits without history."""
        if self._value is None:
            with torch.no_grad():
                self._value = self._compute()
        return self._value

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # What bypasses the dispatcher, such as Triton, reads the logits' memory.
        with torch._C.DisableTorchFunctionSubclass():
            if func in _OF_MEMORY:
                args = (args[0].value(), *args[1:])
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        named = dict(kwargs or {})
        if func is _aten._to_copy.default and [*named] == ["dtype"]:
            # As mixed precision does with all that a model returns.
            logits, dtype = args[0], named["dtype"]
            cast = cls(lambda: logits.value().to(dtype), logits.shape, dtype, logits)
            cast.layer = logits.layer
            return cast
        args, named = tree_map_only(LazyLogits, LazyLogits.value, (args, named))
        return func(*args, **named)


_OF_MEMORY = (
    Tensor.data_ptr,
    Tensor.numpy,
    Tensor.tolist,
    Tensor.storage,
    Tensor.untyped_storage,
    Tensor.__array__,
    Tensor.__deepcopy__,
    Tensor.__dlpack__,
    Tensor.__reduce_ex__,
    Tensor.__repr__,
)


def lazy_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the linear layer's output, computed when it is read."""
    dtype = hidden.dtype
    if is_autocast(hidden) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(hidden.device.type)
    logits: LazyLogits = _Linear.apply(hidden, weight, bias, dtype)  # type: ignore[no-untyped-call]
    logits.layer = Layer(hidden, weight, bias)
    return logits


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype
    ) -> LazyLogits:
        ctx.save_for_backward(hidden, weight)
        ctx.dtype, ctx.bias_dtype = dtype, None if bias is None else bias.dtype
        plain = [x if x is None else x.detach() for x in (hidden, weight, bias)]
        versions = [x if x is None else x._version for x in plain]

        def compute() -> Tensor:
            if versions != [x if x is None else x._version for x in plain]:
                raise RuntimeError(
                    "the loss needed no logits, so they were not computed, and the head's "
                    "weight has changed since: read them before the optimizer's step"
                )
            logits: Tensor = _aten.linear(*(x if x is None else x.to(dtype) for x in plain))
            return logits

        return LazyLogits(compute, (*hidden.shape[:-1], len(weight)), dtype, hidden)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        hidden, weight = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias, _ = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        of_hidden = of_weight = of_bias = None
        if wants_hidden:
            of_hidden = (grad @ weight.to(ctx.dtype)).to(hidden.dtype)
        if wants_weight:
            inputs = hidden.reshape(-1, hidden.shape[-1]).to(ctx.dtype)
            of_weight = (rows.t() @ inputs).to(weight.dtype)
        if wants_bias:
            of_bias = rows.sum(0).to(ctx.bias_dtype)
        return of_hidden, of_weight, of_bias, None
