import pytest
import torch

from losscli.losses import REDUCTIONS
from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.gate import Gate
from losscli.truth.inputs import make_inputs
from losscli.truth.oracle import Oracle


def compute(case, input, target):
    leaf = input.clone().requires_grad_()
    loss = case.spec.reference(leaf, target, reduction=case.reduction, **case.params)
    (gradient,) = torch.autograd.grad(loss, leaf, torch.ones_like(loss))
    return loss, gradient


@pytest.fixture
def case(make_case):
    return make_case("mse", shape=(16, 24))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", ["smooth_l1", "mse", "hinge"])
def test_pytorchs_own_result_passes_the_gate_with_its_errors(make_case, loss, reduction):
    case = make_case(loss, reduction=reduction)
    inputs = make_inputs(case)
    result = Gate(case, inputs).judge("mine", "forward_backward", *compute(case, *inputs.values()))
    assert (result.status, result.implementation, result.check) == (PASS, "mine", "gate")
    error = result.error
    assert None not in (error.value_abs, error.value_rel, error.value_ulp, error.grad_ulp)


def test_forward_is_judged_without_a_gradient(case):
    inputs = make_inputs(case)
    result = Gate(case, inputs).judge("mine", "forward", compute(case, *inputs.values())[0])
    assert result.status == PASS
    assert result.error.grad_ulp is None


def test_a_wrong_loss_fails_and_the_reason_says_which(case):
    inputs = make_inputs(case)
    loss, gradient = compute(case, *inputs.values())
    result = Gate(case, inputs).judge("mine", "forward_backward", 1.01 * loss, gradient)
    assert result.status == FAIL
    assert result.reason.startswith("loss: expected 0.")


def test_a_zero_or_absent_gradient_fails(case):
    inputs = make_inputs(case)
    loss, gradient = compute(case, *inputs.values())
    gate = Gate(case, inputs)
    zero = gate.judge("mine", "forward_backward", loss, torch.zeros_like(gradient))
    absent = gate.judge("mine", "forward_backward", loss, None)
    assert zero.status == FAIL
    assert zero.reason.startswith("gradient: expected ")
    assert (absent.status, absent.reason) == (FAIL, "gradient: expected a tensor, got None")


def test_the_oracle_sums_a_case_once_for_all_implementations(case, monkeypatch):
    inputs = make_inputs(case)
    calls = []
    value = Oracle.value
    monkeypatch.setattr(Oracle, "value", lambda self: calls.append(1) or value(self))
    gate = Gate(case, inputs)
    for name in ("one", "two", "three"):
        assert gate.judge(name, "forward", compute(case, *inputs.values())[0]).status == PASS
    assert len(calls) == 1


def test_a_tolerance_of_the_config_is_applied_and_shown(case):
    inputs = make_inputs(case)
    loss = compute(case, *inputs.values())[0] * (1 + 1e-5)
    result = Gate(case, inputs, loosened=256.0).judge("mine", "forward", loss)
    assert (result.status, result.tolerance) == (PASS, "256 ulp")


def test_pytorchs_function_and_files_that_are_right_as_a_whole_get_a_warning_others_fail(case):
    inputs = make_inputs(case)
    loss, gradient = compute(case, *inputs.values())
    smallest = gradient.abs().argmin()
    gradient.view(-1)[smallest] *= 1.0003
    gate = Gate(case, inputs)
    found = gate.judge("functional", "forward_backward", loss, gradient)
    assert (found.status, found.code) == (WARN, Code.SAME_ERROR_AS_PYTORCH)
    assert found.reason.startswith("gradient: expected ")
    assert (found.error.grad_ulp or 0) > 1000
    assert gate.judge("mine.py", "forward_backward", loss, gradient).status == WARN
    for name in ("custom", "reference", "compile"):
        assert gate.judge(name, "forward_backward", loss, gradient).status == FAIL


@pytest.mark.parametrize("spoil", [lambda g: g * 1.01, lambda g: g * torch.nan, lambda g: g / 0])
def test_pytorchs_own_function_that_is_wrong_as_a_whole_fails(case, spoil):
    inputs = make_inputs(case)
    loss, gradient = compute(case, *inputs.values())
    result = Gate(case, inputs).judge("functional", "forward_backward", loss, spoil(gradient))
    assert (result.status, result.code) == (FAIL, "wrong")
