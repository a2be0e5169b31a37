"""Mistakes of the self-test that only one check finds, for its own reason."""

import itertools

import pytest
import torch

from losscli.cases.axes import DTYPES
from losscli.implementations.process_state import ProcessState
from losscli.losses import LOSSES
from losscli.runs.records import FAIL
from losscli.truth.problem import Problem
from losscli.verify.checks.branches import _coordinates, _is_exact, _placed, exact_case
from losscli.verify.selftest.wrong.side_effects import GLOBAL_STATE
from tests.machinery import MACHINERY
from tests.parameters import naming
from tests.verify.judging import find_wrong, put

MISTAKES = [
    ("one ulp off", "exact", "mean", "on the branch"),
    ("one ulp off", "exact", "none", "these additions are exact in every order"),
    (
        "first row decides",
        "non_uniform_grad_output",
        "none",
        "grad_output with a first row of zeros, ",
    ),
    ("one number", "non_uniform_grad_output", "none", "with stride 0, "),
    ("mean of means", "non_uniform_grad_output", "mean", "parts of 1, 5 and 58 rows, "),
]


@pytest.mark.parametrize(("name", "check", "reduction", "reason"), MISTAKES)
@pytest.mark.parametrize("loss", MACHINERY)
def test_mistake_fails_its_check_for_its_own_reason(
    make_case, loss, name, check, reduction, reason
):
    case = make_case(loss, reduction=reduction)
    wrong = find_wrong(name)
    if wrong.unavailable(case):
        pytest.skip("is no mistake of this loss")
    (result,) = put(case, wrong, checks=(check,))
    assert (result.status, result.code) == (FAIL, "wrong")
    assert reason in result.reason


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_that_are_taken_for_zero_below_a_millionth_fail_whatever_their_size(
    make_case, loss
):
    """The gradients of L1 are all of one size, that of a mean of 20,167 elements 5e-5."""
    case = make_case(loss, shape=(67, 301))
    results = put(case, find_wrong("small gradients lost"), checks=("gradients",))
    name = LOSSES[loss].operands[0].name
    (failure,) = [result for result in results if result.check == f"{name}_gradient"]
    assert (failure.status, failure.code) == (FAIL, "wrong")


def test_unreadable_random_state_of_a_gpu_is_not_blamed(monkeypatch):
    """Not before CUDA is started, and not after a kernel has broken the GPU."""
    gpu = "not started"

    def states():
        if gpu == "broken":
            raise RuntimeError("CUDA error: device-side assert triggered")
        return [torch.get_rng_state()]

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: gpu != "not started")
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", states)
    before = ProcessState.read()
    gpu = "started"
    assert before.restore() == []
    before = ProcessState.read()
    gpu = "broken"
    assert before.restore() == []


@pytest.mark.parametrize("name", GLOBAL_STATE)
def test_state_that_a_call_changes_is_named_and_restored(make_case, name):
    before = ProcessState.read()
    wrong = find_wrong(f"leaves {name}")
    result, value = put(make_case("mse"), wrong, checks=("global_state", "value"))
    code = "monkey_patched" if name.startswith("functions of ") else "global_state_leak"
    assert (result.status, result.code) == (FAIL, code)
    assert " changed state that remains: " in result.reason
    assert f"{name} " in result.reason
    assert before.restore() == []
    if name != "grad mode":  # which the call of value sets itself
        assert (value.status, value.code) == (FAIL, code)


@pytest.mark.parametrize("loss", ["smooth_l1", "mse", "hinge"])
def test_every_branch_of_these_losses_has_exact_values(make_case, loss):
    for dtype, parameter in itertools.product(DTYPES, [0.0, 0.1, 1.5, 1e30]):
        with naming(dtype, parameter):
            params = {p.name: parameter for p in LOSSES[loss].parameters}
            case = exact_case(make_case(loss, dtype=dtype, params=params))
            problem = Problem.of(case)
            kinks = case.spec.kinks(case.params)
            for coordinates in _coordinates(problem):
                own = _placed(problem, coordinates)
                assert _is_exact(own)
                met = case.spec.branch_coordinate(
                    *(each.double() for each in own.operands.values())
                )
                assert set(met.flatten().tolist()) == set(coordinates)
                sides = torch.bucketize(met, torch.tensor(kinks, dtype=torch.float64))
                assert len(sides.unique()) == 1 or not kinks
