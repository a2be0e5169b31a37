"""Excuses a wrong result that is no worse than that of PyTorch's own formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from losscli.runs.records import FAIL, NO_WORSE_THAN_TORCH, WARN
from losscli.truth.distances import Errors, agree_beyond_range, compare, distance, ulp
from losscli.truth.oracle import Truth
from losscli.truth.tolerances import ELEMENT_ULP, Outcome


def excused(
    outcome: Outcome,
    result: Tensor,
    truths: Callable[[], Iterable[Truth]],
    torchs: Iterable[Tensor | None],
    judge: Callable[[Errors], Outcome],
) -> Outcome:
    """Return a failure as a warning if torch's own result is wrong in each place that failed.

    Args:
        outcome: the failure.
        result: what was judged.
        truths: computes what it has to be, a block at a time.
        torchs: what each of PyTorch's own formulas gives; None where one gives nothing.
        judge: judges the errors that are left when those are taken away that torch makes as well.
    """
    for own in torchs:
        if own is None or (own.shape, own.dtype) != (result.shape, result.dtype):
            continue
        if judge(compare(result, _lenient(result, truths(), own))).status != FAIL:
            return Outcome(WARN, outcome.reason, NO_WORSE_THAN_TORCH)
    return outcome


def no_worse(error: Tensor, torchs: Tensor, wrong: Tensor, slack: Tensor) -> Tensor:
    """Tell which errors are no larger than torch's; those near them pass where torch's is wrong."""
    return (error <= torchs) | (wrong & (error <= torchs + slack))


def _lenient(result: Tensor, truths: Iterable[Truth], torchs: Tensor) -> Iterator[Truth]:
    """Yield the truths, replaced by the result itself wherever torch's own is at least as wrong."""
    for truth in truths:
        got = result.detach()[truth.block].double()
        own = torchs.detach()[truth.block].double()
        errors = [_errors(value, truth, result.dtype) for value in (got, own)]
        slack = ELEMENT_ULP * ulp(truth.scale, result.dtype)
        excuse = no_worse(errors[0], errors[1], errors[1] > slack, slack)
        yield replace(truth, value=torch.where(excuse, got, truth.value))


def _errors(got: Tensor, truth: Truth, dtype: torch.dtype) -> Tensor:
    """Return the distance of each element, which is infinite where NaN or an infinity differs."""
    error = distance(got, truth).nan_to_num(nan=math.inf, posinf=math.inf)
    return error.masked_fill(agree_beyond_range(got, truth.value, dtype), 0.0)
