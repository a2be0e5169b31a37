"""Divergences from k classes of a teacher that are wrong on purpose, most by their bins."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.losses.rows.logit_pairs import weighted_sum
from losscli.losses.rows.topk_kl_divergence import bins_of_both, divergence_of
from losscli.verify.selftest.formula import formula, reduced

Pair = tuple[Tensor, Tensor]
"""The bins of the student and of the teacher."""


def of_bins(change: Callable[[Case, Tensor, Tensor], Pair]) -> Callable[..., Tensor]:
    """Return the loss of other bins."""

    def loss(case: Case, *operands: Tensor) -> Tensor:
        pair, mask = _bins(case, *operands)
        divergence = divergence_of(case.params["reverse"])
        return divergence.reference(*change(case, *pair), mask, reduction=case.reduction)

    return loss


def _bins(
    case: Case, input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None = None
) -> tuple[Pair, Tensor | None]:
    return bins_of_both(input, classes, target, mask, case.params["temperature"]), mask


def _without_rest(case: Case, p: Tensor, q: Tensor) -> Pair:
    """Compares the classes alone, whose probabilities it divides by their sums."""
    return p[..., :-1], q[..., :-1]


def _rest_without_gradient(case: Case, p: Tensor, q: Tensor) -> Pair:
    """Has no gradient of the student's rest."""
    return torch.cat([p[..., :-1], p[..., -1:].detach()], -1), q


def _rest_as_a_difference(case: Case, p: Tensor, q: Tensor) -> Pair:
    """Takes 1 less the classes for the rest, which has few digits where that is small."""
    logs = p.log_softmax(-1)
    rest = 1 - logs[..., :-1].exp().sum(-1, keepdim=True)
    return torch.cat([logs[..., :-1], rest.clamp_min(torch.finfo(p.dtype).tiny).log()], -1), q


def _temperature_of_both(case: Case, p: Tensor, q: Tensor) -> Pair:
    """Divides the teacher's log-probabilities by the temperature as well."""
    return p, q / case.params["temperature"]


MISTAKES: dict[str, Callable[[Case, Tensor, Tensor], Pair]] = {
    "rest left out": _without_rest,
    "no gradient of the rest": _rest_without_gradient,
    "rest as a difference": _rest_as_a_difference,
    "temperature of both": _temperature_of_both,
}


def other_direction(case: Case, *operands: Tensor) -> Tensor:
    """Has the reverse divergence where the forward one is due, and the other way round."""
    return formula(case, *operands, reverse=1 - case.params["reverse"])


def classes_in_order(
    case: Case, input: Tensor, classes: Tensor, target: Tensor, *mask: Tensor
) -> Tensor:
    """Takes the classes in ascending order, whatever the order of the log-probabilities is."""
    return formula(case, input, classes.sort(-1).values, target, *mask)


def sum_above_one(case: Case, *operands: Tensor) -> Tensor:
    """Takes probabilities as they are where they sum up to more than 1."""
    (p, q), mask = _bins(case, *operands)
    logs = p.log_softmax(-1)
    first, second = (logs, q) if case.params["reverse"] else (q, logs)
    rows = weighted_sum(first.exp(), first - second)
    kept = torch.ones_like(rows, dtype=torch.bool) if mask is None else mask
    return reduced(case, torch.where(kept, rows, 0.0), kept.sum())
