"""The largest of the cancelling terms that a loss's spec names."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.local import Operands
from losscli.losses import LOSS


def elements(case: Case, operands: Operands) -> Tensor:
    """Return each element's reference loss."""
    return case.spec.reference(*operands.values(), reduction="none", **case.params)


def magnitudes(case: Case, operands: Operands, losses: Tensor) -> Tensor:
    """Return the scale of the losses' errors."""
    terms = largest_terms(case, LOSS, operands, losses)
    return losses if terms is None else terms


def largest_terms(
    case: Case,
    part: str,
    values: Operands,
    elements: Tensor,
    incoming: Tensor | float = 1.0,
    share: float = 1.0,
) -> Tensor | None:
    """Return the larger of each element and its terms; None if it has no terms.

    ``elements`` are a loss or a derivative times ``incoming``; ``share`` multiplies only the terms.
    """
    if case.spec.terms is None:
        return None
    with torch.no_grad():
        found = case.spec.terms.of(*values.values(), **case.params).get(part)
        if found is None:
            return None
        # Relative to a term out of float64's range, every result would pass.
        terms = (found * incoming * share).abs().nan_to_num(nan=0.0, posinf=0.0)
        if terms.dim() > elements.dim():  # of each value of a row, whose derivatives are added up
            terms = terms.sum(0)
        return terms.fmax(elements.abs())
