"""The check of results that are larger than the caches."""

from __future__ import annotations

import pytest

from losscli.implementations import find_implementation
from losscli.runs.records import FAIL, PASS
from losscli.verify.selftest.surgery import graft
from tests.machinery import MACHINERY
from tests.verify.judging import judge, put, reference

CHECKS = ("bulk",)


def a_line_is_not_written(case, input, target):
    loss = reference(case, input, target)
    if loss.numel() < 2**20:
        return loss
    short = loss.detach().clone()
    short[2**20 : 2**20 + 16] = 0
    return graft(short, loss)


def test_unwritten_line_of_a_large_result_fails(make_case):
    (result,) = judge(make_case(reduction="none"), a_line_is_not_written, checks=CHECKS)

    assert result.status == FAIL
    assert result.reason.startswith("repeat 255 of 2047, loss: expected ")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_our_kernels_pass(make_case, loss, dtype):
    case = make_case(loss, dtype=dtype, reduction="none")

    (result,) = put(case, find_implementation("custom"), checks=CHECKS)

    assert (result.status, result.reason) == (PASS, "")


def test_bulk_does_not_apply_to_sums(make_case):
    assert judge(make_case(), reference, checks=CHECKS) == []
