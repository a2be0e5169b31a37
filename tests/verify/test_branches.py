import itertools
from functools import partial

import pytest
import torch

from losscli.cases.axes import DTYPES
from losscli.implementations import find_implementation
from losscli.losses import LOSSES, REDUCTIONS
from losscli.runs.records import FAIL, PASS
from losscli.truth.problem import Problem
from losscli.verify.checks.branches import supplement
from tests.handmade import pair
from tests.machinery import MACHINERY
from tests.parameters import naming
from tests.verify.judging import find_wrong, judge, reference, result_of
from tests.verify.judging import put as put_to

KINKED = [name for name in MACHINERY if LOSSES[name].kinks(LOSSES[name].resolve({}))]
PLAIN = ("value", "gradients")
STARVED = {
    "smooth_l1": {"params": {"beta": 2.0}, "reduction": "mean"},
    "hinge": {"params": {"margin": 1.5}, "reduction": "mean"},
}
"""Uniform inputs differ by less than 1, and their products are below 1."""


def quadratic_only(case, input, target):
    return (0.5 * (input - target) ** 2 / case.params["beta"]).mean()


def no_clamp(case, input, target):
    return (case.params["margin"] - input * target).mean()


put = partial(result_of, "branches")


@pytest.mark.parametrize(
    ("loss", "wrong", "counted"),
    [
        ("smooth_l1", quadratic_only, "0.0 % linear below, 100.0 % quadratic, 0.0 % linear above"),
        ("hinge", no_clamp, "100.0 % linear, 0.0 % clamped"),
    ],
)
def test_mistake_in_a_branch_without_inputs_fails(make_case, loss, wrong, counted):
    case = make_case(loss, **STARVED[loss])
    plain = judge(case, wrong, checks=PLAIN)
    result = put(case, wrong)
    assert {r.status for r in plain} == {PASS}
    assert result.status == FAIL
    assert result.reason.startswith(f"{counted}; in inputs on every branch, ")
    assert "expected " in result.reason


def test_wrong_gradient_at_a_kink_fails(make_case):
    def strict(case, input, target):
        short = case.params["margin"] - input * target
        return torch.where(short > 0, short, 0.0).mean()

    result = put(make_case("hinge", **STARVED["hinge"]), strict)
    assert result.status == FAIL
    assert "gradient: expected " in result.reason


@pytest.mark.parametrize("loss", KINKED)
def test_case_with_a_rare_branch_alone_is_supplemented_and_says_so(make_case, loss):
    for dtype, reduction in itertools.product(DTYPES, REDUCTIONS):
        with naming(dtype, reduction):
            changes = STARVED[loss] | {"reduction": reduction, "dtype": dtype}
            result = put(make_case(loss, **changes), reference)
            assert result.status == PASS
            assert result.reason.endswith(": supplemented")
    result = put(make_case(loss, distribution="normal", scale=2.0), reference)
    assert (result.status, result.reason) == (PASS, "")


@pytest.mark.parametrize("beta", [0.0, 0.3, 100.0])
def test_branches_depend_on_every_parameter(make_case, beta):
    """0.3 has no kink that a dtype holds; 0 has one."""
    result = put(make_case("smooth_l1", params={"beta": beta}, scale=1e-3), reference)
    assert result.status == PASS


@pytest.mark.parametrize("loss", KINKED)
def test_the_supplement_reaches_every_branch_and_each_kink_from_both_sides(make_case, loss):
    for dtype in DTYPES:
        with naming(dtype):
            problem = supplement(Problem.of(make_case(loss, **STARVED[loss] | {"dtype": dtype})))
            spec, params = problem.case.spec, problem.case.params
            coordinate = spec.branch_coordinate(
                *(each.double() for each in problem.operands.values())
            )
            assert min(problem.branch_shares.values()) > 0.01
            for kink in spec.kinks(params):
                near = (coordinate - kink).abs() < 0.02
                assert (coordinate == kink).any()
                assert (near & (coordinate < kink)).any()
                assert (near & (coordinate > kink)).any()


@pytest.mark.parametrize("loss", MACHINERY)
def test_branches_have_a_name_each(loss):
    spec = LOSSES[loss]
    for params in (spec.resolve({}), spec.resolve({"beta": 0.0, "margin": 0.0})):
        names = spec.branches(params)
        assert len(names) == len(set(names)) == len(spec.kinks(params)) + 1


def test_branch_shares_match_a_hand_count(make_case):
    case = make_case("smooth_l1", shape=(4,))
    problem = Problem(case, pair(torch.tensor([-3.0, 0.5, 0.0, 2.0]), torch.zeros(4)))
    assert problem.branch_shares == {"linear below": 0.25, "quadratic": 0.5, "linear above": 0.25}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_margin_rounded_to_float32_first_fails(make_case, dtype):
    wrong = find_wrong("rounded parameters")
    case = make_case("hinge", dtype=dtype, params={"margin": 0.1}, reduction="none")
    (result,) = put_to(case, wrong, checks=["branches"])
    assert result.status == FAIL
    if dtype == "float32":  # whose kink lies between two numbers
        assert "next to a branch point that the dtype rounds, " in result.reason


@pytest.mark.parametrize("loss", KINKED)
def test_losscli_is_right_next_to_a_kink_that_the_dtype_rounds(make_case, loss):
    for parameter, dtype in itertools.product([0.1, 1 / 3, 1e-3, 1e30], DTYPES):
        with naming(parameter, dtype):
            params = {LOSSES[loss].parameters[0].name: parameter}
            case = make_case(loss, dtype=dtype, params=params, reduction="none")
            (result,) = put_to(case, find_implementation("custom"), checks=["branches"])
            assert result.status == PASS
