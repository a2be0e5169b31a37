"""Token log-probabilities of the logits of a linear layer."""

from losscli.machine.pytorch import Tensor

from ..formulas import widened
from ..rows import cross_entropy
from ..rows.forms import NO_INDEX
from .spec import MEMORY_BUDGET, LinearSpec, logits_of, operands, public


def _reference(
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
SPEC = LinearSpec(
    name="linear_token_log_probs",
    formula="log(p[token]), p = softmax(x / T), x = W h + b",
    operands=operands("hidden", "tokens"),
    parameters=(*_SHARED, MEMORY_BUDGET),
    reductions=("none",),
    wide=True,
    sign=-1.0,
    reference=_reference,
    loss=public("linear_token_log_probs"),
    temporaries=7,
    widens=True,
)
