"""The formulas of losses as textbooks have them and people write them, in PyTorch's operations.

They compute in the dtype of their operands, and lose the digits that the references keep, or give
NaN at infinity. What a kernel of others gets wrong and such a formula gets wrong in the same place,
on the same device, is no mistake of the kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from losscli.cases import Case
from losscli.implementations.implementation import Implementation
from losscli.losses.formulas import reduce

if TYPE_CHECKING:
    from torch import Tensor

Unreduced = Callable[..., "Tensor"]
"""A formula of each element or row: operands in the spec's order, parameters by name."""


def _binary_cross_entropy(input: Tensor, target: Tensor) -> Tensor:
    positive, negative = input.log().clamp(min=-100), (1 - input).log().clamp(min=-100)
    return -(target * positive + (1 - target) * negative)


def _with_logits(input: Tensor, target: Tensor) -> Tensor:
    return input.clamp(min=0) - input * target + torch.log1p(torch.exp(-input.abs()))


def _with_sigmoid(input: Tensor, target: Tensor) -> Tensor:
    return _binary_cross_entropy(torch.sigmoid(input), target)


def _with_pos_weight(input: Tensor, target: Tensor, pos_weight: Tensor) -> Tensor:
    softplus = torch.log1p(torch.exp(-input.abs())) + (-input).clamp(min=0)
    return (1 - target) * input + (1 + (pos_weight - 1) * target) * softplus


def _gaussian_nll(input: Tensor, target: Tensor, var: Tensor, *, full: float, eps: float) -> Tensor:
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    return loss + 0.5 * math.log(2 * math.pi) if full else loss


def _huber(input: Tensor, target: Tensor, *, delta: float) -> Tensor:
    distance = (input - target).abs()
    return torch.where(distance < delta, 0.5 * distance**2, delta * (distance - 0.5 * delta))


def _smooth_l1(input: Tensor, target: Tensor, *, beta: float) -> Tensor:
    if beta == 0:
        return (input - target).abs()
    distance = (input - target).abs()
    return torch.where(distance < beta, 0.5 * distance**2 / beta, distance - 0.5 * beta)


def _kl_div(input: Tensor, target: Tensor, *, log_target: float) -> Tensor:
    if log_target:
        return target.exp() * (target - input)
    return torch.xlogy(target, target) - target * input


def _poisson_nll(
    input: Tensor, target: Tensor, *, log_input: float, full: float, eps: float
) -> Tensor:
    loss = input.exp() - target * input if log_input else input - target * torch.log(input + eps)
    if not full:
        return loss
    stirling = target * target.log() - target + 0.5 * torch.log(2 * torch.pi * target)
    return loss + torch.where(target > 1, stirling, 0)


def _sigmoid_focal(input: Tensor, target: Tensor, *, alpha: float, gamma: float) -> Tensor:
    p = torch.sigmoid(input)
    loss = functional.binary_cross_entropy_with_logits(input, target, reduction="none")
    loss = loss * (1 - (p * target + (1 - p) * (1 - target))) ** gamma
    return loss * (alpha * target + (1 - alpha) * (1 - target)) if alpha >= 0 else loss


def _log_cosh(input: Tensor, target: Tensor) -> Tensor:
    return torch.log(torch.cosh(input - target))


def _log_cosh_by_softplus(input: Tensor, target: Tensor) -> Tensor:
    difference = input - target
    return difference + functional.softplus(-2 * difference) - math.log(2)


def _soft_margin(input: Tensor, target: Tensor) -> Tensor:
    return torch.log(1 + torch.exp(-target * input))


def _cosine(one: Tensor, other: Tensor, eps: float = 1e-8) -> Tensor:
    lengths = one.norm(dim=-1).clamp(min=eps) * other.norm(dim=-1).clamp(min=eps)
    cosine: Tensor = (one * other).sum(-1) / lengths
    return cosine


def _cosine_embedding(
    input1: Tensor, input2: Tensor, target: Tensor, *, margin: float, cosine: Unreduced = _cosine
) -> Tensor:
    found = cosine(input1, input2)
    return torch.where(target == 1, 1 - found, (found - margin).clamp(min=0))


def _picked(rows: Tensor, numbers: Tensor) -> Tensor:
    """Return the element of each row's class; classes are the second dimension, or the last."""
    dimension = 1 if numbers.dim() and numbers.shape[:1] == rows.shape[:1] else -1
    return rows.gather(dimension, numbers.long().unsqueeze(dimension)).squeeze(dimension)


def _cross_entropy(input: Tensor, target: Tensor, **_: float) -> Tensor:
    return torch.logsumexp(input, 1) - _picked(input, target)


def _cross_entropy_by_logarithms(input: Tensor, target: Tensor, **_: float) -> Tensor:
    return -_picked(torch.log_softmax(input, 1), target)


def _of_probabilities(input: Tensor, target: Tensor, **_: float) -> Tensor:
    return -(target * torch.log_softmax(input, 1)).sum(1)


def _multi_margin(input: Tensor, target: Tensor, *, p: float, margin: float) -> Tensor:
    own = input.gather(-1, target.long().unsqueeze(-1))
    each = (margin - own + input).clamp(min=0) ** p
    loss: Tensor = (each.sum(-1) - margin**p) / input.shape[-1]
    return loss


def _divergence(first: Tensor, second: Tensor) -> Tensor:
    p, q = torch.log_softmax(first, -1), torch.log_softmax(second, -1)
    return (p.exp() * (p - q)).sum(-1)


def _kl_divergence(input: Tensor, target: Tensor, *, temperature: float) -> Tensor:
    return _divergence(target / temperature, input / temperature)


def _reverse_kl(input: Tensor, target: Tensor, *, temperature: float) -> Tensor:
    return _divergence(input / temperature, target / temperature)


def _js_divergence(input: Tensor, target: Tensor, *, temperature: float, beta: float) -> Tensor:
    q, p = (torch.log_softmax(each / temperature, -1) for each in (input, target))
    m = torch.log(beta * p.exp() + (1 - beta) * q.exp())
    from_p, from_q = (p.exp() * (p - m)).sum(-1), (q.exp() * (q - m)).sum(-1)
    return beta * from_p + (1 - beta) * from_q


def _soft_cross_entropy(input: Tensor, target: Tensor, *, temperature: float) -> Tensor:
    q = torch.softmax(target / temperature, -1)
    return -(q * torch.log_softmax(input / temperature, -1)).sum(-1)


def _total_variation(input: Tensor, target: Tensor, *, temperature: float) -> Tensor:
    p, q = (torch.softmax(each / temperature, -1) for each in (input, target))
    return 0.5 * (p - q).abs().sum(-1)


def _triplet_margin(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    margin: float,
    p: float,
    eps: float,
    swap: float,
) -> Tensor:
    def distance(one: Tensor, other: Tensor) -> Tensor:
        return ((one - other + eps).abs() ** p).sum(-1) ** (1 / p)

    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return (distance(anchor, positive) - far + margin).clamp(min=0)


FORMULAS: Mapping[str, tuple[Unreduced, ...]] = {
    "binary_cross_entropy": (_binary_cross_entropy,),
    "binary_cross_entropy_with_logits": (_with_logits, _with_sigmoid),
    "binary_cross_entropy_with_pos_weight": (_with_pos_weight,),
    "gaussian_nll": (_gaussian_nll,),
    "huber": (_huber,),
    "kl_div": (_kl_div,),
    "log_cosh": (_log_cosh, _log_cosh_by_softplus),
    "poisson_nll": (_poisson_nll,),
    "sigmoid_focal": (_sigmoid_focal,),
    "smooth_l1": (_smooth_l1,),
    "soft_margin": (_soft_margin,),
    "cosine_embedding": (
        _cosine_embedding,
        partial(_cosine_embedding, cosine=functional.cosine_similarity),
    ),
    "cosine_similarity": (
        lambda x1, x2, *, eps: 1 - _cosine(x1, x2, eps),
        lambda x1, x2, *, eps: 1 - functional.cosine_similarity(x1, x2, dim=-1, eps=eps),
    ),
    "cross_entropy": (_cross_entropy, _cross_entropy_by_logarithms),
    "cross_entropy_with_probabilities": (_of_probabilities,),
    "js_divergence": (_js_divergence,),
    "kl_divergence": (_kl_divergence,),
    "multi_margin": (_multi_margin,),
    "reverse_kl_divergence": (_reverse_kl,),
    "soft_cross_entropy": (_soft_cross_entropy,),
    "token_log_probs": (
        lambda logits, tokens, *, temperature: _picked(
            torch.log_softmax(logits / temperature, -1), tokens
        ),
    ),
    "total_variation": (_total_variation,),
    "triplet_margin": (_triplet_margin,),
}
"""The formulas of a loss by its name, where its reference is another."""


def _multi_margin_of_torch(
    input: Tensor, target: Tensor, *, reduction: str, p: float, margin: float
) -> Tensor:
    return functional.multi_margin_loss(
        input, target.long(), p=int(p), margin=margin, reduction=reduction
    )


OWN: Mapping[str, Callable[..., Tensor]] = {"multi_margin": _multi_margin_of_torch}
"""PyTorch's own functions that are not among the implementations."""


def textbook(case: Case) -> list[Implementation]:
    """Return the textbook formulas of a case's loss as implementations."""

    def implementation(formula: Unreduced) -> Implementation:
        def computed(*operands: Tensor) -> Tensor:
            return reduce(formula(*operands, **case.params), case.reduction)

        return Implementation("textbook", "the formula as textbooks have it", lambda _: computed)

    found = [implementation(formula) for formula in FORMULAS.get(case.loss, ())]
    if own := OWN.get(case.loss):
        bound = partial(own, reduction=case.reduction, **case.params)
        found.append(Implementation("torch", "PyTorch's own function", lambda _: bound))
    return found
