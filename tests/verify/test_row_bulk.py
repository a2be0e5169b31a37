"""Checks of rows for what only large gradients, long rows or few strided rows show."""

from __future__ import annotations

import pytest
import torch

from losscli.implementations import Implementation, find_implementation
from losscli.losses import ROW_FORMS
from losscli.runs.records import FAIL, PASS
from losscli.verify.selftest.surgery import regrade
from tests.parameters import few
from tests.verify.test_row_checks import make_case, results


def planted(spoil):
    """Return the reference, whose gradient of the logits goes through a function of both."""

    def bind(case):
        def loss(input, *others):
            spoiled = regrade(input, lambda gradient: spoil(input.detach(), gradient.clone()))
            reference = case.spec.reference
            return reference(spoiled, *others, reduction=case.reduction, **case.settings)

        return loss

    return Implementation("planted", "one mistake", bind)


def a_line_is_not_written(logits, gradient):
    if gradient.numel() >= 2**20:
        gradient.view(-1)[2**20 : 2**20 + 16] = 0
    return gradient


def confident_long_rows(logits, gradient):
    """Lose the gradient of the largest logit where rows are long, and it is far above."""
    if logits.dim() == 2 and logits.shape[1] > 1000 and len(logits) > 1:
        top = logits.topk(2).values
        gradient[(top[:, 0] - top[:, 1]) > 20] *= 0.5
    return gradient


def strided_long_rows(logits, gradient):
    strided = logits.dim() == 2 and logits.stride(1) != 1
    return gradient * 0.5 if strided and len(logits) < 8 and logits.shape[1] > 256 else gradient


def single_very_long_rows(logits, gradient):
    return gradient * (1 if logits.shape[-1] <= 2**16 else 0.5)


@pytest.mark.parametrize(
    ("spoil", "check", "reason"),
    [
        (a_line_is_not_written, "row_bulk", "repeat 30 of 246, input gradient: expected "),
        (confident_long_rows, "row_values", "one class far above the others, long rows"),
        (strided_long_rows, "row_layouts", "a few long rows beside each other, input gradient"),
        (single_very_long_rows, "row_lengths", "1 rows of 132099, input gradient: expected "),
    ],
)
def test_mistake_that_needs_many_or_long_rows_is_found(spoil, check, reason):
    ((status, text),) = results(make_case(reduction="none"), planted(spoil), check)

    assert status == FAIL
    assert reason in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("loss", few(ROW_FORMS))
def test_large_gradients_of_our_kernels_pass(loss, dtype):
    case = make_case(loss, dtype=dtype, reduction="none")

    assert results(case, find_implementation("custom"), "row_bulk") == [(PASS, "row_bulk: ")]


def test_row_bulk_does_not_apply_to_sums():
    assert results(make_case(), find_implementation("reference"), "row_bulk") == []


def test_targets_of_uint8_are_read_as_unsigned():
    def signed(case):
        def loss(input, target, *others):
            if target.dtype == torch.uint8:
                target = target.to(torch.int8).long() % input.shape[1]
            settings = case.settings
            return case.spec.reference(input, target, *others, reduction=case.reduction, **settings)

        return loss

    implementation = Implementation("signed", "reads uint8 as int8", signed)

    ((status, text),) = results(make_case(), implementation, "row_layouts")

    assert status == FAIL
    assert "target of uint8" in text
