"""The public functions and module of fused linear losses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from losscli.losses import operators
from losscli.losses.kinds import refuse_script
from losscli.losses.making import OF_ROWS, public

from .calls import Given, compute_cross_entropy, compute_token_log_probs

OF_HIDDEN_STATES = {
    **OF_ROWS,
    "input": "hidden states, ``(D)`` or ``(..., D)``; differentiable.",
    "hidden": "hidden states, ``(..., D)``; differentiable.",
    "linear_weight": "``(C, D)`` for C classes, in the dtype of the hidden states; differentiable.",
    "target": "class indices in int64, int32 or uint8, ``(...)``.",
    "linear_bias": "``(C)``; differentiable.",
    "reduction": "``none`` (one loss for each row), ``mean`` or ``sum`` (shape ``()``). The mean "
    "divides by the sum of the factors ``weight`` and ``token_weight``.",
    "ignore_index": "class index of rows with loss and gradient 0, which the mean does not count; "
    "None is -100.",
    "token_weight": "a factor for each row, ``(...)``.",
    "return_lse": "whether to return each row's log-sum-exp too, ``(...)``, in float32 (float64 "
    "for float64), without a gradient. Ignored rows are then computed.",
    "memory_budget": "bytes for the logits and the sums of gradients, besides operands and "
    "gradients. None is half of the free memory, so the same call may be sliced and rounded "
    "differently. Under torch.compile and transforms all logits are computed at once.",
    "IndexError": "on the CPU, a class index is out of range. On a GPU the loss and the gradients "
    "are NaN.",
    "ValueError": "a setting is invalid, shapes do not fit, or the budget is too small.",
    "TypeError": "hidden states are not floating-point, or dtypes do not fit.",
    "torch.OutOfMemoryError": "no plan was small enough; gradients are untouched.",
}


@public(OF_HIDDEN_STATES)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    temperature: float = 1.0,
    softcap: float = 0.0,
    z_loss: float = 0.0,
    token_weight: Tensor | None = None,
    return_lse: bool = False,
    memory_budget: int | None = None,
) -> Any:
    """Cross entropy of ``F.linear(input, linear_weight, linear_bias)``, without its memory.

    As torch.nn.functional.linear_cross_entropy of PyTorch 2.13. Logits are computed in slices if
    memory requires it. Gradients are complete, and sums are never accumulated in 16 bits. Ignored
    rows are removed before the products, for which the host waits for their number, except while a
    CUDA graph is captured.

    Returns:
        The loss in the dtype of the logits, under autocast in float32; with ``return_lse`` also the
        log-sum-exps.
    """
    return _computed("linear_cross_entropy", compute_cross_entropy, locals())


@public(OF_HIDDEN_STATES)
def linear_token_log_probs(
    hidden: Tensor,
    linear_weight: Tensor,
    tokens: Tensor,
    *,
    linear_bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    mask: Tensor | None = None,
    entropy: bool = False,
    memory_budget: int | None = None,
) -> Any:
    """Log-probability of each row's token from hidden states, and the row's entropy.

    This is what policy gradients of a language model need; a gradient for each token is exact. With
    entropies, the logits are computed twice, as with checkpointing.

    Returns:
        The log-probabilities, ``(...)``, in float32 (float64 for float64), or with ``entropy``
        these and the entropies.
    """
    return _computed("linear_token_log_probs", compute_token_log_probs, locals())


def _computed(name: str, compute: Callable[..., Any], given: dict[str, Any]) -> Any:
    if operators.are_distributed(given.values()):
        return operators.OF_DTENSORS["hidden_states"](name, compute, given)
    return compute(name, Given.taken(given), **given)


class LinearCrossEntropyLoss(torch.nn.Module):
    """A linear layer and the :func:`linear_cross_entropy` of its logits.

    The arguments are those of torch.nn.LinearCrossEntropyLoss in PyTorch 2.13, without
    ``out_features`` and ``options``, then settings of the function. Parameters have the same names.
    """

    weight: Tensor | None
    __prepare_scriptable__ = refuse_script

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        weight: Tensor | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(in_features, num_classes, bias, device=device, dtype=dtype)
        self.register_buffer("weight", weight)
        own = {*inspect.signature(linear_cross_entropy).parameters}
        # The module has these itself, or takes them in each call.
        own -= {"input", "linear_weight", "target", "linear_bias", "token_weight"}
        if unknown := [name for name in settings if name not in own]:
            raise TypeError(f"{type(self).__name__} has no setting {unknown[0]!r}")
        self.settings = settings

    def forward(self, input: Tensor, target: Tensor, token_weight: Tensor | None = None) -> Any:
        """Return :func:`linear_cross_entropy` of ``input`` ``(..., in_features)``."""
        return linear_cross_entropy(
            input,
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            token_weight=token_weight,
            **self.settings,
        )

    def extra_repr(self) -> str:
        """Show the settings when the module is printed."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
