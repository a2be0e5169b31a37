"""Defines the operators of token_log_probs, whose kernels are made from a functor over rows.

losscli::token_log_probs(Tensor logits, Tensor tokens, float temperature, bool entropy)
    -> (Tensor, Tensor)
losscli::token_log_probs_backward(Tensor grad_log_probs, Tensor grad_entropy, Tensor logits,
    Tensor tokens, float temperature, bool entropy) -> Tensor

Without ``entropy``, the entropies and their gradient have no elements. The kernels have values and
first derivatives; all else is composed of PyTorch's operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from losscli.losses.token_log_probs import reference

from .row_functors import DTYPES, as_rows, is_composed, is_proven, launch, register, wants_grad

NAME = "token_log_probs"
Pair = tuple[Tensor, Tensor]


def _wide(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _check(logits: Tensor, tokens: Tensor) -> None:
    if tokens.dtype != torch.int64 or not logits.dim() or tokens.shape != logits.shape[:-1]:
        raise RuntimeError(
            f"{NAME}: tokens must be int64 of shape {tuple(logits.shape[:-1])}, but are "
            f"{tokens.dtype} of shape {tuple(tokens.shape)}"
        )
    if tokens.device != logits.device:
        raise RuntimeError(f"{NAME}: logits are on {logits.device}, tokens on {tokens.device}")
    if logits.dtype not in DTYPES:
        raise TypeError(f"{NAME} takes float32, float64, float16 or bfloat16, not {logits.dtype}")


def _forward(logits: Tensor, tokens: Tensor, temperature: float, entropy: bool) -> Pair:
    _check(logits, tokens)
    if not is_proven(logits):  # in inference mode, which autograd does not see
        return reference(logits, tokens, temperature, entropy)
    found, entropies = _fake_forward(logits, tokens, temperature, entropy)
    values = (found, entropies if entropy else None)
    rows = [as_rows(logits, logits.dtype)]
    launch(NAME, rows, temperature, (), tokens=tokens.contiguous(), values=values)
    return found, entropies


def _backward(
    grad_log_probs: Tensor,
    grad_entropy: Tensor,
    logits: Tensor,
    tokens: Tensor,
    temperature: float,
    entropy: bool,
) -> Tensor:
    _check(logits, tokens)
    gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    wide = _wide(logits)
    incoming = [grad_log_probs.to(wide).contiguous()]
    if entropy:
        incoming.append(grad_entropy.to(wide).contiguous())
    if logits.numel():
        launch(
            NAME,
            [as_rows(logits, logits.dtype)],
            temperature,
            (),
            tokens=tokens.contiguous(),
            incoming=incoming,
            gradients=(gradient,),
        )
    return gradient


def _fake_forward(logits: Tensor, tokens: Tensor, temperature: float, entropy: bool) -> Pair:
    found = logits.new_empty(logits.shape[:-1], dtype=_wide(logits))
    return found, torch.empty_like(found) if entropy else found.new_empty(0)


def _fake_backward(first: Tensor, second: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)


def _composed_backward(
    first: Tensor, second: Tensor, logits: Tensor, tokens: Tensor, *settings: Any
) -> Tensor:
    def function(logits: Tensor) -> Pair:
        return reference(logits, tokens, *settings)

    pull: Any = torch.func.vjp(function, logits)[1]
    gradient: Tensor = pull((first, second))[0]
    return gradient


class _Differentiated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, *settings: Any) -> Pair:
        ctx.save_for_backward(logits, tokens)
        ctx.settings = settings
        with torch._C._AutoDispatchBelowAutograd():
            found: Pair = torch.ops.losscli.token_log_probs(logits, tokens, *settings)
        return found

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        gradient = torch.ops.losscli.token_log_probs_backward(
            *incoming, *ctx.saved_tensors, *ctx.settings
        )
        return gradient, None, None, None


def _autograd(*arguments: Any) -> Pair:
    if is_composed(arguments[:1]):
        return reference(*arguments)
    if wants_grad(arguments[:1]):
        found: Pair = _Differentiated.apply(*arguments)  # type: ignore[no-untyped-call]
        return found
    with torch._C._AutoDispatchBelowAutograd():
        found = torch.ops.losscli.token_log_probs(*arguments)
    return found  # noqa: RET504 - outside of the guard


def _backward_autograd(*arguments: Any) -> Tensor:
    if is_composed(arguments[:3]) or wants_grad(arguments[:3]):
        return _composed_backward(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        gradient: Tensor = torch.ops.losscli.token_log_probs_backward(*arguments)
    return gradient


def define(library: torch.library.Library) -> None:
    """Define the operators."""
    one = "Tensor logits, Tensor tokens, float temperature, bool entropy"
    given = f"Tensor grad_log_probs, Tensor grad_entropy, {one}"
    schemas = {NAME: f"({one}) -> (Tensor, Tensor)", f"{NAME}_backward": f"({given}) -> Tensor"}
    for name, schema in schemas.items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    register(library, NAME, _forward, _autograd, reference, _fake_forward)
    backward = (_backward, _backward_autograd, _composed_backward, _fake_backward)
    register(library, f"{NAME}_backward", *backward)
