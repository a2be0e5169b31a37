"""Cross entropy and token log-probabilities of the logits of a linear layer."""

from typing import Any

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..formulas import widened
from ..rows import cross_entropy
from ..rows.forms import NO_INDEX
from .spec import MEMORY_BUDGET, LinearSpec, logits_of, operands, public


def _cross_entropy(
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


def _torchs_cross_entropy(
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
    loss: Tensor = aten.linear_cross_entropy(
        input,
        linear_weight,
        target,
        linear_bias=linear_bias,
        reduction=reduction,
        ignore_index=int(ignore_index),
        options=options.LinearCrossEntropyOptions(),
    )
    return loss


CROSS_ENTROPY = LinearSpec(
    name="linear_cross_entropy",
    formula="cross entropy of x = W h + b",
    operands=operands("input", "target"),
    parameters=(*cross_entropy.PARAMETERS, MEMORY_BUDGET),
    reference=_cross_entropy,
    functional=_torchs_cross_entropy,
    functional_takes=frozenset({"ignore_index", MEMORY_BUDGET.name}),
    loss=public("linear_cross_entropy"),
    temporaries=7,
)


def _token_log_probs(
    hidden: Tensor,
    tokens: Tensor,
    linear_weight: Tensor,
    linear_bias: Tensor | None = None,
    *,
    reduction: str,
    temperature: float = 1.0,
    softcap: float = 0.0,
    memory_budget: float = 0.0,
) -> Tensor:
    logits = logits_of(hidden, linear_weight, linear_bias)
    settings = {"ignore_index": NO_INDEX, "temperature": temperature, "softcap": softcap}
    wide = logits.to(widened(logits.dtype))
    loss = cross_entropy.reference(wide, tokens.reshape(-1), None, reduction=reduction, **settings)
    return -loss.view(tokens.shape)


_SHARED = [each for each in cross_entropy.PARAMETERS if each.name in ("temperature", "softcap")]
TOKEN_LOG_PROBS = LinearSpec(
    name="linear_token_log_probs",
    formula="log(p[token]), p = softmax(x / T), x = W h + b",
    operands=operands("hidden", "tokens"),
    parameters=(*_SHARED, MEMORY_BUDGET),
    reductions=("none",),
    wide=True,
    sign=-1.0,
    reference=_token_log_probs,
    loss=public("linear_token_log_probs"),
    temporaries=7,
    widens=True,
)
