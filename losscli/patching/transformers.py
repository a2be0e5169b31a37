"""The losses of transformers, whose heads then compute logits only if something reads them."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from losscli.functional import cross_entropy
from losscli.linear.calls import Given, compute_cross_entropy
from losscli.linear.operands import is_autocast, is_eager

from .functional import falling_through
from .lazy_logits import LazyLogits, lazy_linear

MODULE = "transformers"
OLDEST, NEWEST = (4, 57), (5, 24)


def table(memory_budget: int | None = None) -> dict[str, tuple[str, Any]]:
    """Return old name -> new name, and what makes the replacement."""
    return {
        "transformers.loss.loss_utils.fixed_cross_entropy": (
            "losscli.functional.cross_entropy",
            partial(falling_through, fixed_cross_entropy),
        ),
        "transformers.loss.loss_utils.ForCausalLMLoss": (
            "losscli.functional.linear_cross_entropy",
            partial(_causal_loss, memory_budget=memory_budget),
        ),
        "transformers.modeling_utils.PreTrainedModel.__call__": (
            "losscli.patching.transformers.with_lazy_head",
            _with_lazy_head,
        ),
    }


def fixed_cross_entropy(
    source: Tensor,
    target: Tensor,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    **others: Any,
) -> Tensor:
    """Return the cross entropy of logits: the mean, or the sum over ``num_items_in_batch``."""
    reduction = "mean" if num_items_in_batch is None else "sum"
    found = cross_entropy(source, target, ignore_index=ignore_index, reduction=reduction)
    return _of_items(found, num_items_in_batch)


def _causal_loss(
    original: Callable[..., Tensor], *, memory_budget: int | None
) -> Callable[..., Tensor]:

    @wraps(original)
    def loss(
        logits: Tensor,
        labels: Tensor,
        vocab_size: int,
        num_items_in_batch: Tensor | int | None = None,
        ignore_index: int = -100,
        shift_labels: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        if not isinstance(logits, LazyLogits) or logits.shape[-1] != vocab_size:
            return original(
                logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels, **others
            )
        if shift_labels is None:
            shift_labels = labels.roll(-1, -1)
            shift_labels[..., -1] = ignore_index
        hidden, weight, bias = logits.layer
        target = shift_labels.to(hidden.device).reshape(hidden.shape[:-1])
        found = compute_cross_entropy(
            "linear_cross_entropy",
            Given(hidden, weight, target, bias, wide=True),
            weight=None,
            reduction="mean" if num_items_in_batch is None else "sum",
            token_weight=None,
            return_lse=False,
            memory_budget=memory_budget,
            ignore_index=ignore_index,
        )
        return _of_items(found.float(), num_items_in_batch)

    return loss


def _of_items(loss: Tensor, count: Tensor | int | None) -> Tensor:
    if count is None:
        return loss
    return loss / (count.to(loss.device) if isinstance(count, Tensor) else count)


def _with_lazy_head(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        head = _head(self, named)
        if head is None:
            return original(self, *given, **named)
        head.forward = partial(_lazy_forward, head)
        try:
            return original(self, *given, **named)
        finally:
            del head.forward

    return call


def _head(model: Any, named: Mapping[str, Any]) -> Any:
    """Return the head, if its logits go to losscli's loss and it may be lazy."""
    has_labels = named.get("labels") is not None or named.get("shift_labels") is not None
    if torch.compiler.is_compiling() or not has_labels or model._compiled_call_impl is not None:
        return None
    from transformers.loss import loss_utils

    if model.loss_function is not loss_utils.ForCausalLMLoss:
        return None
    try:
        head = model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    if type(head) is not torch.nn.Linear or "forward" in vars(head):
        return None
    # Hooks bring the weight and take it away, as those of FSDP and accelerate do.
    changes = ("_forward_hooks", "_forward_pre_hooks", "_compiled_call_impl")
    return None if any(getattr(head, name) for name in changes) else head


def _lazy_forward(head: torch.nn.Linear, hidden: Tensor) -> Tensor:
    fits = is_autocast(hidden) or hidden.dtype == head.weight.dtype
    if fits and torch.is_grad_enabled() and is_eager(hidden, head.weight, head.bias):
        return lazy_linear(hidden, head.weight, head.bias)
    return torch.nn.Linear.forward(head, hidden)
