"""The public functions and modules of the losses of hidden states."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from losscli.losses import find_loss
from losscli.losses.calling import Calls
from losscli.losses.linear.plan import WHOLE, Plan, Size, candidates, choose, least
from losscli.machine.memory import free_bytes, is_out_of_memory
from losscli.units import format_bytes

from .computing import Losses, composed
from .kernels import Settings
from .operands import Operands, check_classes, check_mask, check_shape, is_eager, operands_of
from .products import Layer
from .rows import Rows

_SMALL = 1 / 16
"""The share of a GPU's memory up to which a loss takes its logits whole without looking."""
_FEW_BYTES = 2**26
"""The same on a CPU."""
_GIVEN_WITH_CALLS = {"input", "linear_weight", "target", "linear_bias", "token_weight"}
"""Arguments of the function that the module has itself, or takes with each call."""
_NO_TOKEN = -(2**31)
"""What rows that a mask leaves out have in place of their token."""


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

    As torch.nn.functional.linear_cross_entropy of PyTorch 2.13, with the same names. The logits are
    made in parts, as far as the memory asks for it; gradients are those of the whole: no gradient
    is left out, and nothing is added up in 16 bits. Rows that are ignored are taken out before the
    products, for which the host waits for their number, but not while a CUDA graph is captured.

    Args:
        input: hidden states, ``(D)`` or ``(..., D)``; differentiable.
        linear_weight: ``(C, D)`` for C classes, in the dtype of ``input``; differentiable.
        target: the number of each row's class in int64, int32 or uint8, ``(...)``.
        linear_bias: ``(C)``; differentiable.
        weight: a number for each class, ``(C)``, that multiplies its loss; in the dtype of the
            logits.
        reduction: ``none`` (one loss for each row), ``mean`` or ``sum`` (shape ``()``). The mean
            divides by the sum of what multiplies the losses: of ``weight`` and ``token_weight``.
        ignore_index: the class number of rows whose loss and gradient are 0, and which the mean
            does not count; None is -100.
        label_smoothing: how much of each target is shared equally by all classes, from 0 to 1.
        temperature: divides the logits; above 0.
        softcap: makes logits ``softcap * tanh(x / softcap)``, after the temperature; 0 for none.
        z_loss: multiplies the square of each row's log of the sum of exponentials, which is added.
        token_weight: a number for each row, ``(...)``, that multiplies its loss.
        return_lse: also return the logarithm of each row's sum of exponentials, ``(...)``, in
            float32 (of float64 in float64), without a gradient. Then ignored rows are computed too.
        memory_budget: bytes that the logits and the sums of gradients may take, besides operands
            and gradients. None is half of what is free: the same call may then be computed in other
            parts, and round otherwise. Within torch.compile and transforms all logits are made.

    Returns:
        The loss in the dtype of the logits, under autocast in float32; with ``return_lse`` also
        that.

    Raises:
        ValueError: a setting is out of its domain, shapes do not fit, or the budget is too small.
        TypeError: hidden states are no floating tensor, or those dtypes do not fit.
        IndexError: on the CPU, a target is out of range. On a GPU the loss and the gradients are
            NaN.
        torch.OutOfMemoryError: no plan was small enough; gradients are untouched.
    """
    name = "linear_cross_entropy"
    ignored = -100 if ignore_index is None else ignore_index
    settings = Settings(ignored, label_smoothing, temperature, softcap, z_loss)
    _check_settings(name, settings, reduction)
    operands = operands_of(name, input, linear_weight, target, linear_bias, "target")
    check_shape(name, "weight", weight, linear_weight.shape[:1], "a number for each class")
    if weight is not None and weight.requires_grad:
        raise ValueError(f"{name}: weight has no gradient here; give weight.detach()")
    check_shape(name, "token_weight", token_weight, operands.shape, "the shape of target")
    weight = None if weight is None else weight.to(operands.weight.dtype)
    inner = reduction if token_weight is None else "none"
    losses, log_sums = _compute(
        name, operands, weight, settings, inner, memory_budget, with_log_sums=return_lse
    )
    if token_weight is not None:
        losses = _weighted(losses, token_weight, operands, weight, settings, reduction)
    losses = losses.to(operands.dtype)
    if return_lse:
        assert log_sums is not None
        return losses, log_sums.view(operands.shape)
    return losses


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
    """Log-probability of each row's token from hidden states, and the entropy of the row.

    What policy gradients take of a language model: any gradient for each token is exact. With
    entropies the logits are made twice, as PyTorch's checkpointing would.

    Args:
        hidden: hidden states, ``(..., D)``; differentiable.
        linear_weight: ``(C, D)`` for C tokens, in the dtype of ``hidden``; differentiable.
        tokens: the number of each row's token in int64, int32 or uint8, ``(...)``.
        linear_bias: ``(C)``; differentiable.
        temperature: divides the logits; above 0.
        softcap: makes logits ``softcap * tanh(x / softcap)``, after the temperature; 0 for none.
        mask: whether a row counts, ``(...)``, bool. What does not count is taken out before the
            products; its results and its gradient are 0.
        entropy: whether to return the entropies as well.
        memory_budget: as in :func:`linear_cross_entropy`.

    Returns:
        The log-probabilities, ``(...)``, in float32 (of float64 in float64), or with ``entropy``
        these and the entropies.

    Raises:
        As :func:`linear_cross_entropy`.
    """
    name = "linear_token_log_probs"
    operands = operands_of(name, hidden, linear_weight, tokens, linear_bias, "tokens")
    ignored = _NO_TOKEN
    check_mask(name, mask, operands.shape, "tokens")
    if mask is not None:
        numbers = operands.class_numbers
        operands = operands._replace(class_numbers=torch.where(mask.reshape(-1), numbers, ignored))
    settings = Settings(ignored, 0.0, temperature, softcap, 0.0, entropy)
    _check_settings(name, settings)
    found, _ = _compute(name, operands, None, settings, "none", memory_budget)
    return (found[0], found[1]) if entropy else -found


class LinearCrossEntropyLoss(torch.nn.Module):
    """A linear layer and the cross entropy of its logits; see :func:`linear_cross_entropy`.

    The arguments are those of torch.nn.LinearCrossEntropyLoss of PyTorch 2.13, then settings of the
    function. Its parameters have the same names.
    """

    weight: Tensor | None

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
        own = {*inspect.signature(linear_cross_entropy).parameters} - _GIVEN_WITH_CALLS
        if unknown := [name for name in settings if name not in own]:
            raise TypeError(f"{type(self).__name__} has no setting {unknown[0]!r}")
        self.settings = settings

    def forward(self, input: Tensor, target: Tensor, token_weight: Tensor | None = None) -> Any:
        """Return what :func:`linear_cross_entropy` does, of ``input`` ``(..., in_features)``."""
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
        """Show the settings where the module is printed."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


def _check_settings(name: str, settings: Settings, reduction: str = "none") -> None:
    """Raise what cross entropy does for a reduction or a setting out of its domain."""
    calls = Calls(name)
    calls.parameters = find_loss("cross_entropy").parameters
    calls.check({"reduction": reduction, **settings._asdict()})


def _is_captured(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _compute(
    name: str,
    operands: Operands,
    class_weight: Tensor | None,
    settings: Settings,
    reduction: str,
    budget: int | None,
    *,
    with_log_sums: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the losses, of rows in the shape of the hidden states without their width."""
    hidden, target = operands.hidden, operands.class_numbers
    kept = None
    eager = is_eager(hidden, operands.weight, operands.bias, target)
    if eager and not target.is_cuda:
        counted = target != settings.ignore_index
        check_classes(name, target, len(operands.weight), counted)
    if eager and not (with_log_sums or _is_captured(hidden)):
        counts = target != settings.ignore_index
        kept = counts.nonzero().squeeze(1)
        if len(kept) == len(target):
            kept = None
        else:
            hidden, target = hidden.index_select(0, kept), target.index_select(0, kept)
    rows = Rows(
        target,
        len(operands.weight),
        class_weight,
        settings,
        reduction,
        kept is None,
        with_log_sums,
    )
    if not eager:
        losses, log_sums = composed(rows, Layer(hidden, operands.weight, operands.bias))
        shape = (*losses.shape[:-1], *operands.shape) if reduction == "none" else ()
        return losses.reshape(shape), log_sums
    size = _size(operands, hidden, settings, reduction)
    plan = _plan(name, size, budget, hidden.device)
    try:
        losses, log_sums = Losses.apply(  # type: ignore[no-untyped-call]
            hidden, operands.weight, operands.bias, rows, plan
        )
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(_advice(name, plan, size)) from error
    if reduction != "none":
        return losses, log_sums
    if kept is not None:
        shape = (*losses.shape[:-1], operands.class_numbers.numel())
        losses = losses.new_zeros(shape).index_copy(-1, kept, losses)
    elif settings.entropy and rows.may_ignore:
        losses = losses.masked_fill(target == settings.ignore_index, 0.0)
    return losses.reshape((*losses.shape[:-1], *operands.shape)), log_sums


def _size(operands: Operands, hidden: Tensor, settings: Settings, reduction: str) -> Size:
    tensors = (operands.hidden, operands.weight, operands.bias)
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    return Size(
        rows=len(hidden),
        width=hidden.shape[1],
        classes=len(operands.weight),
        item=hidden.element_size(),
        gradients=wanted,
        whole=not settings.entropy,
        reduced=reduction != "none",
        bent=settings.softcap != 0,
    )


def _plan(name: str, size: Size, budget: int | None, device: torch.device) -> Plan:
    if budget is None:
        # To ask for what is free takes longer than a small loss.
        few = _FEW_BYTES
        if device.type == "cuda":
            few = int(torch.cuda.get_device_properties(device).total_memory * _SMALL)
        best = candidates(size, few)[0]
        if best.bytes <= few and (best.kind == WHOLE or best.part == size.classes):
            return best
    try:
        return choose(size, budget, free_bytes(str(device)) if budget is None else 0)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _advice(name: str, plan: Plan, size: Size) -> str:
    smallest = least(size)
    return (
        f"{name}: out of memory with the plan {plan.kind!r}, which takes "
        f"{format_bytes(plan.bytes)} besides operands and gradients. Give a smaller memory_budget; "
        f"the least is {smallest.bytes} bytes ({format_bytes(smallest.bytes)})"
    )


def _weighted(
    losses: Tensor,
    token_weight: Tensor,
    operands: Operands,
    class_weight: Tensor | None,
    settings: Settings,
    reduction: str,
) -> Tensor:
    """Return the losses times the weights of their rows, reduced."""
    weights = token_weight.to(losses.dtype)
    losses = losses * weights
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    numbers, classes = operands.class_numbers, len(operands.weight)
    rows = Rows(numbers, classes, class_weight, settings, reduction, True, False)
    return losses.sum() / rows.weighted(weights.reshape(-1)).sum()
