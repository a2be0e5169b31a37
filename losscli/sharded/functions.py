"""The public functions of the losses whose classes are spread over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from losscli.linear.calls import (
    Given,
    check_class_weight,
    check_settings,
    compute_cross_entropy,
    compute_token_log_probs,
)
from losscli.linear.kernels import Settings
from losscli.linear.operands import (
    check_classes,
    check_floating,
    check_numbers,
    check_shape,
    is_eager,
)
from losscli.linear.rows import Rows
from losscli.losses.formulas import widened

from .logits import Losses
from .ranks import Ranks

_NO_CLASS = -(2**31)
"""A class number that no row has: nothing is ignored."""


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    temperature: float = 1.0,
    softcap: float = 0.0,
    z_loss: float = 0.0,
) -> Tensor:
    """Cross entropy of logits whose classes are spread over the ranks of a group.

    As :func:`losscli.functional.cross_entropy` of all logits, of which each rank has those of some
    classes, in the order of the ranks. All ranks return the same bits. Forward makes one
    collective, an all-gather of 12 bytes a row and rank in float32; backward makes none, and
    expects the same incoming gradient on all ranks.

    Args:
        input: this rank's logits, ``(C_r)``, ``(N, C_r)`` or ``(N, C_r, d1, ...)`` for its C_r
            classes, of which there may be none; differentiable once.
        target: the number of each row's class among those of all ranks, in int64, int32 or uint8,
            in the shape of ``input`` without C_r; the same on all ranks.
        weight: a number for each of this rank's classes, ``(C_r)``, that multiplies its loss; on
            all ranks or on none. It has no gradient.
        group: the process group whose ranks have the classes, or a mesh of one dimension; None for
            all processes.
        sizes: how many classes each rank has. None: the first call with this group and this C_r
            asks the other ranks, for which the host waits, and later calls take that it is still
            so: then either all ranks' sizes have changed or none. Where what comes with the
            collective does not agree, the CPU raises ValueError and a GPU returns NaN.
        reduction: ``none`` (one loss for each row), ``mean`` or ``sum`` (shape ``()``).
        ignore_index: the class number of rows whose loss and gradient are 0, and which the mean
            does not count.
        label_smoothing: how much of each target is shared equally by the classes of all ranks,
            from 0 to 1.
        temperature: divides the logits; above 0.
        softcap: makes logits ``softcap * tanh(x / softcap)``, after the temperature; 0 for none.
        z_loss: multiplies the square of each row's log of the sum of exponentials, which is added.

    Returns:
        The loss, in the dtype of ``input``.

    Raises:
        RuntimeError: there is no process group.
        ValueError: this process is not in the group, ``sizes`` or another shape does not fit, a
            setting is out of its domain, or on the CPU ranks have different rows.
        TypeError: ``input`` is not floating, ``target`` does not hold class numbers, or the dtype
            of ``weight`` is not that of ``input``.
        IndexError: on the CPU, where a target is no class. On a GPU the loss and the gradient of
            that row are NaN.
    """
    name = "cross_entropy"
    settings = Settings(ignore_index, label_smoothing, temperature, softcap, z_loss)
    check_settings(name, settings, reduction)
    check_floating(name, "input", input)
    check_numbers(name, "target", target, "; probabilities of classes cannot be sharded")
    check_plain(name, input, target, weight)
    if input.dim() == 0:
        raise ValueError(f"{name}: input must be (C_r), (N, C_r) or (N, C_r, ...), but is a number")
    rows = input.movedim(1, -1) if input.dim() > 1 else input
    check_shape(name, "target", target, rows.shape[:-1], "the shape of input without its classes")
    check_shape(name, "weight", weight, rows.shape[-1:], "a number for each class of this rank")
    check_class_weight(name, weight)
    if weight is not None and weight.dtype != input.dtype:
        raise TypeError(
            f"{name}: weight must have the dtype of input {input.dtype}, but is {weight.dtype}"
        )
    found = _losses(name, rows, target, weight, settings, reduction, group, sizes)
    return (found.view(target.shape) if reduction == "none" else found).to(input.dtype)


def token_log_probs(
    logits: Tensor,
    tokens: Tensor,
    *,
    group: Any = None,
    sizes: Sequence[int] | None = None,
    temperature: float = 1.0,
    entropy: bool = False,
) -> Any:
    """Log-probability of each row's token, of logits whose classes are spread over ranks.

    As :func:`losscli.functional.token_log_probs` of all logits. One all-gather of 12 bytes a row
    and rank in float32, with the entropy 16.

    Args:
        logits: this rank's logits, ``(..., C_r)``; differentiable once.
        tokens: the number of each row's token among those of all ranks, ``(...)``; the same on all
            ranks.
        group: as in :func:`cross_entropy`.
        sizes: as in :func:`cross_entropy`.
        temperature: divides the logits; above 0.
        entropy: whether to return the entropies of rows as well.

    Returns:
        The log-probabilities, ``(...)``, or with ``entropy`` these and the entropies; for 16-bit
        logits in float32.

    Raises:
        As :func:`cross_entropy`.
    """
    name = "token_log_probs"
    settings = Settings(_NO_CLASS, 0.0, temperature, 0.0, 0.0, entropy)
    check_settings(name, settings)
    check_floating(name, "logits", logits)
    check_numbers(name, "tokens", tokens)
    check_plain(name, logits, tokens)
    if logits.dim() == 0:
        raise ValueError(f"{name}: logits must be (..., C_r), but are a number")
    of = "the shape of logits without their classes"
    check_shape(name, "tokens", tokens, logits.shape[:-1], of)
    found = _losses(name, logits, tokens, None, settings, "none", group, sizes)
    if not entropy:
        return -found.view(tokens.shape)
    log_probs, entropies = found.view(2, *tokens.shape).unbind(0)
    return log_probs, entropies


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

    def of_shard(hidden: Tensor) -> Any:
        ranks = Ranks.of(name, group, len(linear_weight), sizes, hidden.device)
        return ranks.shard(reduces=reduce_input_gradient)

    return compute_cross_entropy(
        name,
        Given(input, linear_weight, target, linear_bias, of_shard),
        Settings(
            -100 if ignore_index is None else ignore_index,
            label_smoothing,
            temperature,
            softcap,
            z_loss,
        ),
        weight,
        reduction,
        token_weight,
        memory_budget,
        return_lse=return_lse,
    )


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

    def of_shard(rows: Tensor) -> Any:
        ranks = Ranks.of(name, group, len(linear_weight), sizes, rows.device)
        return ranks.shard(reduces=reduce_input_gradient)

    return compute_token_log_probs(
        name,
        Given(hidden, linear_weight, tokens, linear_bias, of_shard),
        temperature,
        softcap,
        mask,
        memory_budget,
        entropy=entropy,
    )


def _losses(
    name: str,
    logits: Tensor,
    numbers: Tensor,
    weight: Tensor | None,
    settings: Settings,
    reduction: str,
    group: Any,
    sizes: Sequence[int] | None,
) -> Tensor:
    """Return the losses of logits ``(..., C_r)``, of each row ``(N)``, in float32 at least."""
    width = logits.shape[-1]
    ranks = Ranks.of(name, group, width, sizes, logits.device)
    target = numbers.reshape(-1).long()
    may_ignore = settings.ignore_index != _NO_CLASS
    if not target.is_cuda:
        counted = target != settings.ignore_index if may_ignore else True
        check_classes(name, target, ranks.classes, counted)
    rows = Rows(target, ranks.classes, weight, settings, reduction, may_ignore, False, ranks.first)
    found: Tensor = Losses.apply(  # type: ignore[no-untyped-call]
        logits.reshape(target.numel(), width), rows, ranks.shard()
    )
    return found.to(widened(logits.dtype))


def check_plain(name: str, *tensors: Tensor | None) -> None:
    """Raise NotImplementedError for tensors that ranks cannot take."""
    if not is_eager(*tensors):
        raise NotImplementedError(
            f"{name}: losses over ranks take plain tensors, and no compiler or transform traces "
            "them; within torch.compile call them in a function that torch.compiler.disable wraps, "
            "and for DTensors those of losscli.functional"
        )
