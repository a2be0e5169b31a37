"""Policy-gradient loss of tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from losscli.machine.pytorch import Tensor, torch

from ..calling import Added, Arguments, Calls
from ..domain import WEIGHTS
from ..fields import Operand, Parameter, Tolerance
from ..formulas import REDUCTIONS, promoted, reduced, widened
from ..making import element_loss
from ..shapes import broadcasts_to, remedy
from . import kl_estimate

SEQUENCE_MEAN, SEQUENCE_SUM = "sequence_mean", "sequence_sum"
"""Reductions that no operator has."""


def _bounds(parameters: Mapping[str, float]) -> dict[float, float]:
    """Return the bounds of the ratio by logarithm, in ascending order."""
    low, high, dual = (parameters[name] for name in ("clip_low", "clip_high", "dual_clip"))
    found = {math.log1p(high): 1 + high}
    if low < 1:
        found[math.log1p(-low)] = 1 - low
    if dual and not parameters["cispo"]:
        found[math.log(dual)] = dual
    return dict(sorted(found.items()))


def _branches(parameters: Mapping[str, float]) -> tuple[str, ...]:
    ends = [f"{bound:.6g}" for bound in _bounds(parameters).values()]
    inside = [f"ratio from {a} to {b}" for a, b in pairwise(ends)]
    return (f"ratio below {ends[0]}", *inside, f"ratio above {ends[-1]}")


def _elements(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    cispo: float,
) -> Tensor:
    # Logarithms are compared, because exponentials are rounded.
    low, high = math.log1p(-clip_low) if clip_low < 1 else -math.inf, math.log1p(clip_high)
    falls = advantages < 0
    log = log_probs - old_log_probs
    is_low, is_high = log < low, log > high
    if not cispo:
        is_low, is_high = is_low & falls, is_high & ~falls
    is_highest = falls & (log > (math.log(dual_clip) if dual_clip and not cispo else math.inf))
    # Harmless where not selected, because the gradient is computed there too.
    free = torch.where(is_low | is_high | is_highest, torch.zeros_like(log), log)
    ratio = torch.where(is_highest, dual_clip, torch.exp(free))
    ratio = torch.where(is_low, 1 - clip_low, torch.where(is_high, 1 + clip_high, ratio))
    return -advantages * (ratio.detach() * log_probs if cispo else ratio)


def _as_written(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    cispo: float,
) -> Tensor:
    ratio = torch.exp(log_probs - old_log_probs)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    if cispo:
        return -advantages * clipped.detach() * log_probs
    loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    if dual_clip:
        loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)
    return loss


@dataclass(frozen=True)
class _DualClip(Parameter):
    def check(self, value: float) -> str | None:
        if 0 < value <= 1:
            return f"{self.name} must be above 1, or 0 for none, but is {value:g}"
        return super().check(value)


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor | None,
    advantages: Tensor,
    reference_log_probs: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = 0.0,
    cispo: bool = False,
    kl_coefficient: float = 0.0,
    kl_estimator: int = 3,
    reduction: str = "mean",
    divisor: float | Tensor | None = None,
    weight: Tensor | None = None,
) -> Arguments:
    """Policy-gradient loss of tokens: PPO, GRPO, DAPO, Dr. GRPO and CISPO.

    With the ratio ``r = exp(log_probs - old_log_probs)``, ``w = clamp(r, 1 - clip_low, 1 +
    clip_high)`` and advantage A, a token's loss is ``max(-A * r, -A * w)``, and at most ``-A *
    dual_clip`` if A is negative (PPO, Schulman et al. 2017, arXiv:1707.06347; dual clip, Ye et al.
    2020, arXiv:1912.09729; higher ``clip_high``, DAPO, Yu et al. 2025, arXiv:2503.14476). With
    ``cispo`` it is ``-A * w * log_probs`` with a constant w (MiniMax-M1, 2025, arXiv:2506.13585).
    At a bound the gradient passes, as in ``torch.clamp``.

    Reductions: ``mean`` over counted tokens (DAPO); ``sequence_mean``, the mean over sequences of
    each mean over tokens (GRPO, Shao et al. 2024, arXiv:2402.03300); ``sequence_sum``, the mean
    over sequences of each sum over tokens, with the maximum length as ``divisor`` in Dr. GRPO (Liu
    et al. 2025, arXiv:2503.20783).

    Args:
        log_probs: the policy's token log-probabilities, ``(..., T)`` for sequences of T tokens;
            differentiable.
        old_log_probs: those of the policy that sampled the tokens; broadcastable with
            ``log_probs``. None for ``log_probs``, so that the ratio is 1.
        advantages: per token, or ``(..., 1)`` per sequence; broadcastable with ``log_probs``.
        reference_log_probs: those of the reference; only needed with ``kl_coefficient``.
        mask: the tokens that count, bool or 0 and 1; broadcastable with ``log_probs``; None for
            all. The other losses must be finite.
        dual_clip: the largest ratio for a negative advantage; above 1, or 0 for none.
        kl_coefficient: multiplies :func:`kl_estimate`, which is added.
        kl_estimator: 1, 2 or 3, for k1, k2 or k3.
        reduction: ``none`` (the broadcast shape), ``mean``, ``sum``, ``sequence_mean`` or
            ``sequence_sum`` (shape ``()``). With a mask, a mean over no tokens is 0.
        divisor: divides ``sum`` and ``sequence_sum``, for example the token count of all ranks; a
            number or a one-element tensor.
        weight: multiplies the loss of each token, but not the divergence, for example to correct
            for another sampler; broadcastable with the others, and differentiable.

    Raises:
        ValueError: an unknown reduction, an invalid setting, a ``kl_coefficient`` without
            ``reference_log_probs``, or a ``divisor`` with another reduction.
    """
    CALLS.check({"reduction": reduction, "dual_clip": dual_clip})
    if divisor is not None and reduction not in ("sum", SEQUENCE_SUM):
        raise ValueError(f"policy: reduction {reduction!r} takes no divisor")
    old = log_probs if old_log_probs is None else old_log_probs
    operands = (log_probs, *map(_constant, (old, advantages)))
    counted = _counted(mask, reduction, divisor, log_probs)
    added = None
    if kl_coefficient:
        if reference_log_probs is None:
            raise ValueError("policy: a kl_coefficient needs reference_log_probs")
        terms = _arguments(counted, (log_probs, _constant(reference_log_probs)), (kl_estimator,))
        added = Added(kl_coefficient, kl_estimate.CALLS, terms)
    parameters = (clip_low, clip_high, dual_clip, float(cispo))
    return _arguments(counted, operands, parameters, weight)._replace(added=added)


def _constant(operand: Tensor) -> Tensor:
    return operand.detach() if operand.requires_grad else operand


_Counted = tuple[str, Tensor | None, float | Tensor | None]
"""How tokens count in the operators' terms: a reduction, a weight and a divisor."""


def _counted(
    mask: Tensor | None, reduction: str, divisor: float | Tensor | None, like: Tensor
) -> _Counted:
    # A divisor by the mask goes into the weights: grad_output is constant and forward can use it.
    if reduction == SEQUENCE_SUM:
        return "sum", mask, math.prod(like.shape[:-1]) * (1 if divisor is None else divisor)
    if reduction in ("none", "sum"):
        return reduction, mask, divisor
    if mask is None:  # all sequences have the same length
        return "mean", None, None
    if not broadcasts_to(mask.shape, like.shape):
        raise RuntimeError(
            f"policy: mask must have a shape that broadcasts to that of log_probs, "
            f"{list(like.shape)}, but has shape {list(mask.shape)}"
            f"{remedy('mask', mask.shape, like.shape)}"
        )
    tokens = mask.expand(like.shape)
    if reduction == SEQUENCE_MEAN:
        counts = tokens.sum(-1, keepdim=True).clamp(min=1) * math.prod(like.shape[:-1])
    else:
        counts = tokens.sum().clamp(min=1)
    return "sum", tokens.to(widened(like.dtype)) / counts, None


def _arguments(
    counted: _Counted,
    operands: tuple[Tensor, ...],
    parameters: tuple[float, ...],
    weight: Tensor | None = None,
) -> Arguments:
    reduction, own, divisor = counted
    dtype: torch.dtype | None = None
    if own is not None:  # the loss keeps the dtype of the caller's tensors
        dtype = promoted(*operands, *(() if weight is None else (weight,)))
        weight = own if weight is None else weight * own
    return Arguments(operands, reduction, parameters, weight, divisor, dtype=dtype)


CALLS = Calls("policy", reductions=(*REDUCTIONS, SEQUENCE_MEAN, SEQUENCE_SUM))
SPEC = element_loss(
    policy_loss,
    "PolicyLoss",
    calls=CALLS,
    formula="-A * min(r, 1 + clip_high) if A >= 0 else -A * max(r, 1 - clip_low), r = exp(x - y)",
    operands=(
        Operand("log_probs", "log-probabilities of the policy"),
        Operand("old_log_probs", "log-probabilities of the old policy", differentiable=False),
        Operand(
            *("advantages", "advantages"),
            differentiable=False,
            shape=lambda shape: (*shape[:-1], 1) if shape else shape,  # one for each sequence
            domain=WEIGHTS,
        ),
    ),
    parameters=(
        Parameter("clip_low", 0.2, 0.0, "how far the ratio may fall below 1", 0.15, 1.0),
        Parameter("clip_high", 0.2, 0.0, "how far the ratio may rise above 1", 0.28),
        _DualClip("dual_clip", 0.0, 0.0, "largest ratio where A < 0; 0: no bound", 2.7, other=3.0),
        Parameter(
            *("cispo", 0.0, 0.0, "whether the clipped ratio is a constant factor", 0.0, 1.0),
            is_switch=True,
            other=1.0,
        ),
    ),
    elements=_elements,
    functional=reduced(_as_written),
    kinks=lambda parameters: tuple(_bounds(parameters)),  # of one sign of the advantage each
    branch_coordinate=lambda own, old, advantages: own - old + 0 * advantages,
    branches=_branches,
    stops_gradient=lambda parameters: bool(parameters["cispo"]),
    temporaries=9,
    tolerance=Tolerance(
        1.5, "the exponential and the product with it add two roundings to the four of an element"
    ),
)
