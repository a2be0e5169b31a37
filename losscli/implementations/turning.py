"""Changes a prediction in place, so that no result for the contents before is right."""

from __future__ import annotations

from torch import Tensor

from losscli.cases import Case


def turn(values: Tensor, case: Case) -> None:
    """Change some predictions of a case; once more brings them back, bit for bit.

    Their signs are turned. Where the loss does not take all numbers of both signs, they are
    reversed in the last dimension instead, and so stay in their domain.
    """
    if case.spec.operands[0].domain.is_real:
        values.neg_()
    elif values.dim():
        values.copy_(values.flip(-1))
