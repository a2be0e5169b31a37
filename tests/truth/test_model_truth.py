"""How far a tensor may be from the truth of a reference whose formula is not known."""

import math
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from losscli.cases.model_case import NAME, Argument, ModelCase
from losscli.implementations import IMPLEMENTATIONS
from losscli.implementations.requests import Call, Forward, SecondDerivatives
from losscli.runs.records import FAIL, PASS
from losscli.truth import model, tolerances
from losscli.truth.distances import compare
from losscli.truth.model import Reference, take_infinity_for_nan, truths_at_largest

CASE = ModelCase(
    *(NAME, (3,), (), "float32", "none", "cpu", {}, "normal", 7),
    model="reference.py:Model",
    arguments=(Argument("x", (3,), "float32", differentiable=True),),
)
TRUTH = torch.tensor([1.0, -0.5, 0.25, 0.0], dtype=torch.float64)
OWN = TRUTH.float()


def judged(got, truth=TRUTH, own=OWN, terms=1):
    errors, torchs = (compare(x, truths_at_largest(truth, got.dtype)) for x in (got, own))
    return tolerances.judge_model(errors, torchs, got.dtype, terms)


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


def test_infinity_is_as_good_as_nan_but_no_number_is():
    truth = torch.tensor([math.nan, math.nan, 1.0], dtype=torch.float64)
    got = torch.tensor([math.inf, 0.0, math.inf])
    (replaced,) = take_infinity_for_nan(lambda: truths_at_largest(truth, got.dtype), got)
    assert replaced.value[0] == math.inf
    assert replaced.value[1].isnan()
    assert replaced.value[2] == 1.0


def test_reference_is_asked_on_copies_for_its_worker_may_be_timing_the_operands(monkeypatch):
    asked = []
    monkeypatch.setattr(model, "bind", lambda *_: SimpleNamespace(send=asked.append))
    reference = Reference(CASE, IMPLEMENTATIONS["reference"])
    operands = {"x": torch.ones(3)}
    reference.send(Forward(operands))
    reference.send(Call(operands))
    reference.send(SecondDerivatives(operands, torch.ones(3), operands))
    given = [each.operands for each in asked]
    assert len(given) == 3
    assert all(torch.equal(each["x"], operands["x"]) for each in given)
    assert operands["x"].data_ptr() not in {each["x"].data_ptr() for each in given}


def test_case_of_a_model_has_its_own_shapes_and_a_floating_prediction():
    labels = Argument("labels", (100,), "int64", high=9)
    logits = Argument("logits", (100, 10), "float32", differentiable=True)
    case = replace(CASE, arguments=(labels, logits, Argument("scale", plain=2.0))).settled()
    assert case.spec.names == ("logits", "labels")
    assert (case.shape, case.dtype) == ((100, 10), "float32")
    assert case.reshaped((3, 5)) == case
    assert case.name == "100 int64, 100x10 float32, 2.0"
    assert case.of_dtype("float64").dtypes == {"logits": "float64", "labels": "int64"}
    fewer = case.of_rows(37)
    assert fewer.shapes == {"logits": (37, 10), "labels": (37,)}
    assert fewer.of_rows(37) is None
