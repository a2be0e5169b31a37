"""The public fused linear losses of a weight sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from losscli.linear.calls import Given, compute_cross_entropy, compute_token_log_probs
from losscli.linear.parts import Shard
from losscli.losses.kinds import explained

from .collective import Ranks
from .functions import check_plain


@explained
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

    Args:
        input: hidden states, ``(D)`` or ``(..., D)``, the same on all ranks; differentiable once.
        linear_weight: ``(C_r, D)`` for this rank's C_r classes; differentiable once.
        target: class indices over all ranks, ``(...)``.
        linear_bias: ``(C_r)``; differentiable once.
        weight: a factor for each of this rank's classes, ``(C_r)``.
        group: as in :func:`cross_entropy`.
        sizes: as in :func:`cross_entropy`.
        reduction: ``none``, ``mean`` or ``sum``.
        ignore_index: as in :func:`losscli.functional.linear_cross_entropy`, like the arguments that
            follow.
        label_smoothing: share of each target spread over the classes of all ranks.
        temperature: divides the logits.
        softcap: bounds the logits.
        z_loss: factor of each row's squared log-sum-exp.
        token_weight: a factor for each row; not together with ``weight`` for a mean.
        return_lse: also return each row's log-sum-exp.
        memory_budget: bytes for this rank's logits and sums of gradients.
        reduce_input_gradient: whether to sum the gradient of ``input`` over the ranks. False leaves
            this rank's partial sum to the caller, for example for a reduce-scatter.

    Returns:
        As :func:`losscli.functional.linear_cross_entropy`, bitwise equal on all ranks.

    Raises:
        As :func:`losscli.functional.linear_cross_entropy` and :func:`cross_entropy`.
    """
    return _computed("linear_cross_entropy", compute_cross_entropy, **locals())


@explained
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

    Args:
        hidden: hidden states, ``(..., D)``, the same on all ranks; differentiable once.
        linear_weight: ``(C_r, D)`` for this rank's tokens; differentiable once.
        tokens: token indices over all ranks, ``(...)``.
        linear_bias: ``(C_r)``; differentiable once.
        group: as in :func:`cross_entropy`.
        sizes: as in :func:`cross_entropy`.
        temperature: divides the logits; above 0.
        softcap: makes logits ``softcap * tanh(x / softcap)``, after the temperature; 0 for none.
        mask: the rows that count, ``(...)``, bool; the same on all ranks.
        entropy: whether to return the entropies too.
        memory_budget: as in :func:`linear_cross_entropy`.
        reduce_input_gradient: as in :func:`linear_cross_entropy`.

    Returns:
        As :func:`losscli.functional.linear_token_log_probs`, bitwise equal on all ranks.

    Raises:
        As :func:`linear_cross_entropy`.
    """
    return _computed("linear_token_log_probs", compute_token_log_probs, **locals())


def _computed(
    name: str,
    compute: Callable[..., Any],
    *,
    group: Any,
    sizes: Sequence[int] | None,
    reduce_input_gradient: bool,
    **given: Any,
) -> Any:
    """Compute a loss of ``given`` arguments, the hidden states, weight and class indices first."""
    tensors = [each for each in given.values() if isinstance(each, Tensor)]
    operands = Given.taken(given)
    check_plain(name, *operands[:3], *tensors)
    weight = operands.linear_weight
    of_shard = shard_of(name, weight, group, sizes, reduces=reduce_input_gradient)
    return compute(name, operands._replace(of_shard=of_shard), **given)


def shard_of(
    name: str,
    linear_weight: Tensor,
    group: Any,
    sizes: Sequence[int] | None,
    *,
    reduces: bool = True,
) -> Callable[..., Shard]:
    """Return a function that makes the shard of this rank, with ``linear_weight``'s classes."""

    def shard(hidden: Tensor, *alike: Any) -> Shard:
        every = (hidden.dtype, *alike)
        ranks = Ranks.of(name, group, len(linear_weight), sizes, hidden.device, every)
        return ranks.shard(reduces=reduces)

    return shard
