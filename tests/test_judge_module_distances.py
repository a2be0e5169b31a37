"""How far a tensor may be from the truth of a reference whose formula is not known."""

import math

import pytest
import torch

from losscli.judge.modules.distances import distance

TRUTH = torch.tensor([1.0, -0.5, 0.25, 0.0], dtype=torch.float64)
OWN = TRUTH.float()


def changed(index, value):
    got = OWN.clone()
    got[index] = value
    return got


def test_exact_tensor_has_no_error():
    found = distance(OWN.clone(), TRUTH, OWN)

    assert (found.ulp, found.reference_ulp, found.wrong) == (0.0, 0.0, "")


def test_error_is_measured_by_the_largest_truth():
    assert not distance(changed(2, 0.25 + 4 * 2**-23), TRUTH, OWN).wrong
    assert "at [2], off by" in distance(changed(2, 0.25 + 6 * 2**-23), TRUTH, OWN).wrong


def test_error_of_the_reference_allows_four_times_as_much():
    own = changed(0, 1 + 3 * 2**-23)

    assert not distance(changed(1, -0.5 - 12 * 2**-23), TRUTH, own).wrong
    assert distance(changed(1, -0.5 - 13 * 2**-23), TRUTH, own).wrong


def test_sum_of_many_terms_may_be_rounded_more_often():
    truth, own = torch.tensor(1.0, dtype=torch.float64), torch.tensor(1.0)
    got = torch.tensor(1 + 20 * 2**-23)

    assert distance(got, truth, own).wrong
    assert not distance(got, truth, own, terms=2**20).wrong
    assert distance(torch.tensor(1 + 80 * 2**-23), truth, own, terms=2**20).wrong


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_and_infinity_are_wrong_where_the_truth_is_finite(value):
    assert distance(changed(1, value), TRUTH, OWN).wrong
    assert not distance(changed(1, value), TRUTH, changed(1, value)).wrong


def test_nan_and_infinity_agree_with_themselves():
    truth = torch.tensor([math.nan, math.inf, 1e300], dtype=torch.float64)
    due = torch.tensor([math.nan, math.inf, math.inf])

    assert not distance(due, truth, due).wrong
    assert distance(-due, truth, due).wrong


def test_empty_tensor_is_right():
    assert not distance(torch.zeros(0), torch.zeros(0, dtype=torch.float64), torch.zeros(0)).wrong
