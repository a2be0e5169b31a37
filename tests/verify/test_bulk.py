"""The check of results that are larger than the caches."""

from __future__ import annotations

from losscli.runs.records import FAIL
from losscli.verify.selftest.surgery import graft
from tests.verify.judging import judge, reference

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


def test_bulk_does_not_apply_to_sums(make_case):
    assert judge(make_case(), reference, checks=CHECKS) == []
