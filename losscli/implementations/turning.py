"""Changes a prediction in place, so that no result for the contents before is right."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.losses import MODEL


def turn(values: Tensor, case: Case) -> None:
    """Change some predictions of a case; once more brings them back, bit for bit.

    Their signs are turned. Where the loss does not take all numbers of both signs, they are
    reversed in the last dimension instead, and so stay in their domain. Of a Model, which may be
    the same for both signs, they are doubled or halved.
    """
    if case.spec.unit == MODEL and case.spec.operands[0].domain.is_real:
        integers = values.view(getattr(torch, f"int{8 * values.itemsize}"))
        mantissa = round(-math.log2(torch.finfo(values.dtype).eps))
        integers.bitwise_xor_(1 << mantissa)  # the last bit of the exponent
    elif case.spec.operands[0].domain.is_real:
        values.neg_()
    elif values.dim():
        values.copy_(values.flip(-1))
