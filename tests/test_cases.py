"""A case is its own dictionary key."""

import json
import pickle
from typing import Any

import pytest
from msgspec.structs import replace

from losscli.cases import Case, Parameters, distinct_names
from losscli.runs.encoding import read_object


@pytest.fixture
def case(make_case):
    return make_case("smooth_l1", params={"beta": 0.5})


def test_cases_are_one_key_where_they_are_equal(case):
    assert {case: 1}[replace(case, params={"beta": 0.5})] == 1
    for changes in ({"seed": 1}, {"scale": 2.0}, {"params": {"beta": 0.7}}, {"device": "cuda:0"}):
        assert len({case, replace(case, **changes)}) == 2, changes


def test_a_case_survives_json_and_pickle(case):
    text = json.dumps(case.to_json()).encode()
    assert {case, read_object(Case, text), pickle.loads(pickle.dumps(case))} == {case}


def test_parameters_are_read_as_a_mapping_and_cannot_be_changed():
    parameters: Any = Parameters({"beta": 0.5})
    assert dict(parameters) == {"beta": 0.5} == parameters
    assert repr(parameters) == "{'beta': 0.5}"
    with pytest.raises(TypeError):
        parameters["beta"] = 1.0


def test_distinct_names_differ_where_case_names_are_equal(case):
    other = replace(case, seed=3)
    alone = replace(case, dtype="float64")
    assert distinct_names([case, other, alone, case]) == {
        case: f"{case.name} seed=0",
        other: f"{case.name} seed=3",
        alone: alone.name,
    }


def test_parameters_with_equal_short_forms_get_distinct_names(case):
    other = replace(case, params={"beta": 0.5000001})
    assert case.name == other.name
    assert list(distinct_names([case, other]).values()) == [
        f"{case.name} params=beta=0.5",
        f"{case.name} params=beta=0.5000001",
    ]


@pytest.mark.parametrize(
    ("loss", "is_refused"), [("binary_cross_entropy", True), ("soft_margin", False), ("mse", False)]
)
def test_layout_whose_shapes_the_function_refuses_is_impossible(make_case, loss, is_refused):
    case = make_case(
        loss, layout="broadcast_middle", shape=(2, 3, 4), target_shape=(2, 1, 4), params={}
    )
    text = "broadcast_middle: binary_cross_entropy: target must have the shape of input [2, 3, 4]"
    assert (case.impossible is not None and text in str(case.impossible)) == is_refused
