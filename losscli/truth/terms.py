"""The largest terms of elements in which terms cancel, where the spec of their loss names them."""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.call_data import Operands
from losscli.losses import LOSS


def elements(case: Case, operands: Operands) -> Tensor:
    """Return the loss of each element by the reference."""
    return case.spec.reference(*operands.values(), reduction="none", **case.params)


def magnitudes(case: Case, operands: Operands, losses: Tensor) -> Tensor:
    """Return what the errors of losses are measured at."""
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
    """Return the magnitude of the largest of each element and its terms; None for its own.

    Args:
        case: whose loss it is.
        part: ``LOSS``, or the name of the operand whose derivative the elements are.
        values: the operands in float64, of shapes that broadcast to that of the elements.
        elements: the correct values.
        incoming: what the derivative is multiplied by.
        share: what the terms, but not the elements, are multiplied by besides.
    """
    if case.spec.terms is None:
        return None
    with torch.no_grad():
        found = case.spec.terms.of(*values.values(), **case.params).get(part)
        if found is None:
            return None
        # Beside a term out of float64's range every result would pass.
        terms = (found * incoming * share).abs().nan_to_num(nan=0.0, posinf=0.0)
        if terms.dim() > elements.dim():  # of each value of a row, whose derivatives are added up
            terms = terms.sum(0)
        return terms.fmax(elements.abs())
