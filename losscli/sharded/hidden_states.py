"""The public functions of hidden states, where a vocabulary's weight is spread over ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from losscli.linear.calls import Given, compute_cross_entropy, compute_token_log_probs
from losscli.linear.parts import Shard
from losscli.losses.kinds import explained

from .functions import check_plain
from .ranks import Ranks


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
    """Cross entropy of the logits of a linear layer whose classes are spread over ranks.

    As :func:`losscli.functional.linear_cross_entropy`; each rank has the hidden states, and the
    weight of some classes. The logits are made in slices of this rank's classes, as far as its
    memory asks for it. One all-gather forward, and backward one all-reduce in float32 of the
    gradient of the hidden states, of which each rank has a part of the sum.

    Args:
        input: hidden states, ``(D)`` or ``(..., D)``, the same on all ranks; differentiable once.
        linear_weight: ``(C_r, D)`` for this rank's C_r classes; differentiable once.
        target: the number of each row's class among those of all ranks, ``(...)``.
        linear_bias: ``(C_r)``; differentiable once.
        weight: a number for each of this rank's classes, ``(C_r)``.
        group: as in :func:`cross_entropy`.
        sizes: as in :func:`cross_entropy`.
        reduction: ``none``, ``mean`` or ``sum``.
        ignore_index: as in :func:`losscli.functional.linear_cross_entropy`, and so are the
            arguments that follow.
        label_smoothing: how much of each target is shared by the classes of all ranks.
        temperature: divides the logits.
        softcap: bounds the logits.
        z_loss: multiplies the square of each row's log of the sum of exponentials.
        token_weight: a number for each row; with ``weight`` not for a mean.
        return_lse: also return the logarithm of each row's sum of exponentials.
        memory_budget: bytes that this rank's logits and sums of gradients may take.
        reduce_input_gradient: whether the gradient of ``input`` is added up over the ranks. False
            leaves to the caller the part of the sum that this rank has: as where a reduce-scatter
            follows.

    Returns:
        As :func:`losscli.functional.linear_cross_entropy`, the same bits on all ranks.

    Raises:
        As :func:`losscli.functional.linear_cross_entropy` and :func:`cross_entropy`.
    """
    name = "linear_cross_entropy"
    check_plain(name, input, linear_weight, target, linear_bias, weight, token_weight)
    of_shard = shard_of(name, linear_weight, group, sizes, reduces=reduce_input_gradient)
    return compute_cross_entropy(
        name,
        Given(input, linear_weight, target, linear_bias, of_shard),
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        temperature=temperature,
        softcap=softcap,
        z_loss=z_loss,
        token_weight=token_weight,
        return_lse=return_lse,
        memory_budget=memory_budget,
    )


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
    """Log-probability of each row's token from hidden states, the vocabulary spread over ranks.

    As :func:`losscli.functional.linear_token_log_probs`, with the collectives of
    :func:`linear_cross_entropy`.

    Args:
        hidden: hidden states, ``(..., D)``, the same on all ranks; differentiable once.
        linear_weight: ``(C_r, D)`` for this rank's tokens; differentiable once.
        tokens: the number of each row's token among those of all ranks, ``(...)``.
        linear_bias: ``(C_r)``; differentiable once.
        group: as in :func:`cross_entropy`.
        sizes: as in :func:`cross_entropy`.
        temperature: divides the logits; above 0.
        softcap: makes logits ``softcap * tanh(x / softcap)``, after the temperature; 0 for none.
        mask: whether a row counts, ``(...)``, bool; the same on all ranks.
        entropy: whether to return the entropies as well.
        memory_budget: as in :func:`linear_cross_entropy`.
        reduce_input_gradient: as in :func:`linear_cross_entropy`.

    Returns:
        As :func:`losscli.functional.linear_token_log_probs`, the same bits on all ranks.

    Raises:
        As :func:`linear_cross_entropy`.
    """
    name = "linear_token_log_probs"
    check_plain(name, hidden, linear_weight, tokens, linear_bias, mask)
    of_shard = shard_of(name, linear_weight, group, sizes, reduces=reduce_input_gradient)
    return compute_token_log_probs(
        name,
        Given(hidden, linear_weight, tokens, linear_bias, of_shard),
        temperature=temperature,
        softcap=softcap,
        mask=mask,
        entropy=entropy,
        memory_budget=memory_budget,
    )


def shard_of(
    name: str,
    linear_weight: Tensor,
    group: Any,
    sizes: Sequence[int] | None,
    *,
    reduces: bool = True,
) -> Callable[..., Shard]:
    """Return what asks for the shard of a rank, which has the classes of ``linear_weight``."""

    def shard(hidden: Tensor, *alike: Any) -> Shard:
        every = (hidden.dtype, *alike)
        ranks = Ranks.of(name, group, len(linear_weight), sizes, hidden.device, every)
        return ranks.shard(reduces=reduces)

    return shard
