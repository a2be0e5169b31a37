"""Textbook formulas in PyTorch: a third-party kernel may be wrong where one of them is."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from losscli.cases.case import Case
from losscli.implementations.implementation import Implementation
from losscli.losses import aten
from losscli.losses.formulas import reduce
from losscli.losses.rows.forms import IGNORE_INDEX

Unreduced = Callable[..., Tensor]
"""A formula per element or row: operands in spec order, parameters by name."""


def _binary_cross_entropy(input: Tensor, target: Tensor) -> Tensor:
    positive, negative = input.log().clamp(min=-100), (1 - input).log().clamp(min=-100)
    return -(target * positive + (1 - target) * negative)


def _with_pos_weight(input: Tensor, target: Tensor, pos_weight: Tensor) -> Tensor:
    softplus = torch.log1p(torch.exp(-input.abs())) + (-input).clamp(min=0)
    return (1 - target) * input + (1 + (pos_weight - 1) * target) * softplus


def _from_left(input: Tensor, target: Tensor, pos_weight: Tensor | float = 1.0) -> Tensor:
    """The same with another order of sums in autograd, worse for some targets."""
    return (1 - target) * input + (1 + (pos_weight - 1) * target) * (
        torch.log1p(torch.exp(-input.abs())) + (-input).clamp(min=0)
    )


def _gaussian_nll(input: Tensor, target: Tensor, var: Tensor, *, full: float, eps: float) -> Tensor:
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return loss + 0.5 * math.log(2 * math.pi) if full else loss


def _poisson_nll(
    input: Tensor, target: Tensor, *, log_input: float, full: float, eps: float
) -> Tensor:
    loss = input.exp() - target * input if log_input else input - target * torch.log(input + eps)
    if not full:
        return loss
    stirling = target * target.log() - target + 0.5 * torch.log(2 * math.pi * target)
    return loss + torch.where(target > 1, stirling, 0)


def _picked(rows: Tensor, numbers: Tensor) -> Tensor:
    dimension = 1 if numbers.dim() and numbers.shape[:1] == rows.shape[:1] else -1
    return rows.gather(dimension, numbers.long().unsqueeze(dimension)).squeeze(dimension)


def _cross_entropy_by_maximum(input: Tensor, target: Tensor) -> Tensor:
    """Subtracting the largest logit gives it a gradient that cancels except for rounding."""
    largest = input.max(1, keepdim=True).values
    log_sums = (input - largest).exp().sum(1).log() + largest.squeeze(1)
    return log_sums - _picked(input, target)


def _of_kept_rows(formula: Unreduced) -> Unreduced:
    """Return a formula that gives ignored rows no loss."""

    def computed(input: Tensor, target: Tensor, *, ignore_index: float) -> Tensor:
        kept = target.long() != int(ignore_index)
        return torch.where(kept, formula(input, torch.where(kept, target, 0)), 0.0)

    return computed


def _multi_margin(input: Tensor, target: Tensor, *, p: float, margin: float) -> Tensor:
    own = input.gather(-1, target.long().unsqueeze(-1))
    each = (margin - own + input).clamp(min=0) ** p
    loss: Tensor = (each.sum(-1) - max(margin, 0.0) ** p) / input.shape[-1]
    return loss


def _triplet_margin(anchor: Tensor, positive: Tensor, negative: Tensor, *, margin: float) -> Tensor:
    """Without PyTorch's epsilon."""
    near, far = ((anchor - each).norm(dim=-1) for each in (positive, negative))
    loss: Tensor = (near - far + margin).clamp(min=0)
    return loss


FORMULAS: Mapping[str, tuple[Unreduced, ...]] = {
    "binary_cross_entropy": (_binary_cross_entropy,),
    "binary_cross_entropy_with_logits": (
        lambda x, y: x.clamp(min=0) - x * y + torch.log1p(torch.exp(-x.abs())),
        lambda x, y: _binary_cross_entropy(torch.sigmoid(x), y),
        # Each class's own term; the target's gradient is a difference of two.
        lambda x, y: y * aten.softplus(-x) + (1 - y) * aten.softplus(x),
        _from_left,
    ),
    "binary_cross_entropy_with_pos_weight": (_with_pos_weight, _from_left),
    "gaussian_nll": (_gaussian_nll,),
    "poisson_nll": (_poisson_nll,),
    "log_cosh": (
        lambda x, y: torch.log(torch.cosh(x - y)),
        lambda x, y: (x - y) + aten.softplus(-2 * (x - y)) - math.log(2),
        lambda x, y: torch.logaddexp(x - y, y - x) - math.log(2),
    ),
    "soft_margin": (lambda x, y: torch.log(1 + torch.exp(-y * x)),),
    "cross_entropy": (
        _of_kept_rows(lambda x, y: torch.logsumexp(x, 1) - _picked(x, y)),
        _of_kept_rows(lambda x, y: -_picked(torch.log_softmax(x, 1), y)),
        _of_kept_rows(_cross_entropy_by_maximum),
    ),
    "multi_margin": (_multi_margin,),
    "triplet_margin": (_triplet_margin,),
}
"""Formulas that lose digits which PyTorch's function keeps, by loss."""


def _torchs_multi_margin(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, p: float, **own: Any
) -> Tensor:
    if weight is not None:
        weight = weight.to(input.dtype)
    return aten.multi_margin_loss(input, target.long(), p=int(p), weight=weight, **own)


OWN: Mapping[str, Callable[..., Tensor]] = {
    "cosine_embedding": aten.cosine_embedding_loss,
    "multi_margin": _torchs_multi_margin,
    "weighted_multi_margin": _torchs_multi_margin,
    "nll": lambda x, y, *, ignore_index, **own: aten.nll_loss(
        x, y.long(), None, ignore_index=int(ignore_index), **own
    ),
    "smooth_l1": lambda x, y, **own: aten.smooth_l1_loss(*torch.broadcast_tensors(x, y), **own),
    "triplet_margin": lambda *rows, swap, **own: aten.triplet_margin_loss(
        *rows, swap=bool(swap), **own
    ),
}
"""PyTorch's own functions that are not implementations; smooth L1's reference fixes mixed dtypes,
whose gradients PyTorch rounds twice on a GPU."""


class _Unwidened(TorchFunctionMode):
    """Keeps 16-bit operands in 16 bits where a formula converts to float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.to and args[0].dtype.itemsize == 2 and torch.float32 in args:
            return args[0]
        return func(*args, **(kwargs or {}))


def _in_16_bits(case: Case) -> Callable[..., Tensor]:
    """Return the reference with every step in 16 bits, unless a step overflows."""
    reference = partial(case.spec.reference, reduction=case.reduction, **case.params)

    def computed(*operands: Tensor) -> Tensor:
        with _Unwidened():
            rounded = reference(*operands)
        return torch.where(rounded.isfinite(), rounded, reference(*operands))

    return computed


def _known(formula: Unreduced, case: Case) -> dict[str, float] | None:
    """Return a formula's parameters; None where it lacks one that is off its default."""
    takes = signature(formula).parameters
    for each in case.spec.parameters:
        usual = (None, each.default, each.absent)
        if each.name not in takes and case.params.get(each.name) not in usual:
            return None
    return {name: value for name, value in case.params.items() if name in takes}


def textbook(case: Case) -> list[Implementation]:
    """Return a loss's textbook formulas as implementations."""

    def implementation(formula: Unreduced, known: Mapping[str, float]) -> Implementation:
        def computed(*operands: Tensor) -> Tensor:
            losses = formula(*operands, **known)
            if IGNORE_INDEX.name in known and case.reduction == "mean":
                return losses.sum() / (operands[1].long() != int(known[IGNORE_INDEX.name])).sum()
            return reduce(losses, case.reduction)

        return Implementation("textbook", "the formula as textbooks have it", lambda _: computed)

    formulas = ((each, _known(each, case)) for each in FORMULAS.get(case.loss, ()))
    found = [implementation(each, known) for each, known in formulas if known is not None]
    if own := OWN.get(case.loss):
        bound = partial(own, reduction=case.reduction, **case.params)
        found.append(Implementation("torch", "PyTorch's own function", lambda _: bound))
    if case.spec.widens and case.item_bytes == 2:
        found.append(Implementation("rounded", "the reference, in 16 bits", _in_16_bits))
    return found
