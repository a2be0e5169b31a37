"""Fused linear losses of a weight that is sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from losscli.linear.calls import Given, compute_cross_entropy, compute_token_log_probs
from losscli.linear.functions import OF_HIDDEN_STATES
from losscli.linear.parts import Shard
from losscli.losses.making import public

from .collective import ranks_of
from .functions import OF_SHARDS, check_plain

_OF_SHARDED_WEIGHT = {
    **OF_HIDDEN_STATES,
    **{k: OF_SHARDS[k] for k in ("tokens", "weight", "mask", "group", "sizes", "RuntimeError")},
    "input": "hidden states, ``(D)`` or ``(..., D)``, the same on all ranks; differentiable once.",
    "hidden": "hidden states, ``(..., D)``, the same on all ranks; differentiable once.",
    "linear_weight": "``(C_r, D)`` for this rank's C_r classes; differentiable once.",
    "target": "class indices over all ranks, ``(...)``; the same on all ranks.",
    "linear_bias": "``(C_r)``; differentiable once.",
    "token_weight": "a factor for each row, ``(...)``; not together with ``weight`` for a mean.",
    "memory_budget": "bytes for this rank's logits and sums of gradients; None is half of the free "
    "memory.",
    "TypeError": "hidden states are not floating-point, dtypes do not fit, or ``group`` or "
    "``sizes`` has a wrong type.",
    "ValueError": OF_SHARDS["ValueError"].replace("a setting", "a setting or the budget"),
    "reduce_input_gradient": "whether to sum the hidden states' gradient over the ranks. False "
    "leaves this rank's partial sum to the caller, for example for a reduce-scatter.",
}


@public(_OF_SHARDED_WEIGHT)
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    temperature: float = 1.0,
    softcap: float = 0.0,
    z_loss: float = 0.0,
    token_weight: Tensor | None = None,
    return_lse: bool = False,
    memory_budget: int | None = None,
    reduce_input_gradient: bool = True,
) -> Any:
    """Cross entropy of a linear layer whose classes are sharded over ranks.

    As :func:`losscli.functional.linear_cross_entropy`; each rank has all hidden states and the
    weight of some classes. Logits are computed in slices of this rank's classes if memory requires
    it. Forward makes one all-gather, backward one float32 all-reduce of the hidden states'
    gradient, of which each rank has a partial sum.

    Returns:
        As :func:`losscli.functional.linear_cross_entropy`, bitwise equal on all ranks.
    """
    return _computed("linear_cross_entropy", compute_cross_entropy, locals())


@public(_OF_SHARDED_WEIGHT)
def linear_token_log_probs(
    hidden: Tensor,
    linear_weight: Tensor,
    tokens: Tensor,
    *,
    linear_bias: Tensor | None = None,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    temperature: float = 1.0,
    softcap: float = 0.0,
    mask: Tensor | None = None,
    entropy: bool = False,
    memory_budget: int | None = None,
    reduce_input_gradient: bool = True,
) -> Any:
    """Token log-probabilities from hidden states, with the vocabulary sharded over ranks.

    As :func:`losscli.functional.linear_token_log_probs`, with the collectives of
    :func:`linear_cross_entropy`.

    Returns:
        As :func:`losscli.functional.linear_token_log_probs`, bitwise equal on all ranks.
    """
    return _computed("linear_token_log_probs", compute_token_log_probs, locals())


def _computed(name: str, compute: Callable[..., Any], given: dict[str, Any]) -> Any:
    group, sizes, reduces = map(given.pop, ("group", "sizes", "reduce_input_gradient"))
    tensors = [each for each in given.values() if isinstance(each, Tensor)]
    operands = Given.taken(given)
    check_plain(name, *operands[:3], *tensors)
    of_shard = shard_of(name, len(operands.linear_weight), group, sizes, reduces=reduces)
    return compute(name, operands._replace(of_shard=of_shard), **given)


def shard_of(
    name: str, width: int, group: Any, sizes: Sequence[int] | None, *, reduces: bool = True
) -> Callable[..., Shard]:
    """Return a function that makes this rank's shard, of ``width`` classes."""

    def shard(hidden: Tensor, *alike: Any) -> Shard:
        return ranks_of(name, group, width, sizes, hidden, *alike).shard(reduces=reduces)

    return shard
