"""How far a tensor may be from the truth of a reference whose formula is not known."""

import math

import pytest
import torch

from losscli.runs.records import FAIL, PASS
from losscli.truth.distances import compare
from losscli.truth.model import judge_model, truths_at_largest

TRUTH = torch.tensor([1.0, -0.5, 0.25, 0.0], dtype=torch.float64)
OWN = TRUTH.float()


def judged(got, truth=TRUTH, own=OWN, terms=1):
    errors, torchs = (compare(x, truths_at_largest(truth, got.dtype)) for x in (got, own))
    return judge_model(errors, torchs, got.dtype, terms)


def changed(index, value):
    got = OWN.clone()
    got[index] = value
    return got


def test_exact_tensor_is_right():
    assert judged(OWN.clone()).status == PASS


def test_error_is_measured_by_the_largest_truth():
    assert judged(changed(2, 0.25 + 4 * 2**-23)).status == PASS
    found = judged(changed(2, 0.25 + 6 * 2**-23))
    assert found.status == FAIL
    assert "at [2], off by" in found.reason


def test_error_of_the_reference_allows_four_times_as_much():
    own = changed(0, 1 + 3 * 2**-23)

    assert judged(changed(1, -0.5 - 12 * 2**-23), own=own).status == PASS
    assert judged(changed(1, -0.5 - 13 * 2**-23), own=own).status == FAIL


def test_sum_of_many_terms_may_be_rounded_more_often():
    truth, own = torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0)
    got = torch.tensor(1 + 20 * 2**-23)

    assert judged(got, truth, own).status == FAIL
    assert judged(got, truth, own, terms=2**20).status == PASS
    assert judged(torch.tensor(1 + 80 * 2**-23), truth, own, terms=2**20).status == FAIL


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_wrong_where_the_truth_is_finite(value):
    assert judged(changed(1, value)).status == FAIL


def test_nan_and_infinity_agree_with_themselves():
    truth = torch.tensor([math.nan, math.inf, 1e300], dtype=torch.float64)
    due = torch.tensor([math.nan, math.inf, math.inf])

    assert judged(due, truth, due).status == PASS
    assert judged(-due, truth, due).status == FAIL


def test_empty_tensor_is_right():
    empty = torch.zeros(0)
    assert judged(empty, empty.double(), empty).status == PASS
