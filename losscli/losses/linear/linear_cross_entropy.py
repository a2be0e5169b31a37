"""Cross entropy of the logits of a linear layer."""

from typing import Any

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..rows import cross_entropy
from .spec import MEMORY_BUDGET, LinearSpec, logits_of, operands, public


def _reference(
    input: Tensor,
    target: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None = None,
    *,
    reduction: str,
    memory_budget: float = 0.0,
    **settings: float,
) -> Tensor:
    logits = logits_of(input, linear_weight, linear_bias)
    loss = cross_entropy.functional(
        logits, target.reshape(-1), None, reduction=reduction, **settings
    )
    return loss.view(target.shape) if reduction == "none" else loss


def _functional(
    input: Tensor,
    target: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None = None,
    *,
    reduction: str,
    ignore_index: float = -100,
    **_: float,
) -> Tensor:
    options: Any = torch.nn
    return aten.linear_cross_entropy(
        input,
        linear_weight,
        target,
        linear_bias=linear_bias,
        reduction=reduction,
        ignore_index=int(ignore_index),
        options=options.LinearCrossEntropyOptions(),
    )


SPEC = LinearSpec(
    name="linear_cross_entropy",
    formula="cross entropy of x = W h + b",
    operands=operands("input", "target"),
    parameters=(*cross_entropy.PARAMETERS, MEMORY_BUDGET),
    reference=_reference,
    functional=_functional,
    functional_takes=frozenset({"ignore_index", MEMORY_BUDGET.name}),
    loss=public("linear_cross_entropy"),
    temporaries=7,
)
