"""The inputs, the oracle and the checks go by the operands of a loss's spec, which may be three."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from losscli.implementations import Implementation, find_implementation
from losscli.implementations.binding import binding
from losscli.implementations.sandbox.program import bound
from losscli.implementations.source import Source
from losscli.losses import LOSSES, REDUCTIONS, Operand
from losscli.losses.domain import WEIGHTS
from losscli.losses.fields import last_dimension
from losscli.losses.formulas import reduce
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.inputs import make_grad_output, make_inputs
from losscli.truth.oracle import Oracle
from losscli.verify.checks import CHECKS, find_check
from losscli.verify.selftest.surgery import regrade
from tests.parameters import SLOW
from tests.verify.judging import put

NAME = "scaled"


def scaled(input, target, scale, *, reduction):
    return reduce((input - target) ** 2 * scale, reduction)


def difference(input, target, scale):
    return input - target


def spec_of(differentiable=True, shape=last_dimension):
    third = Operand(
        "scale", "what multiplies", differentiable=differentiable, shape=shape, domain=WEIGHTS
    )
    return replace(
        LOSSES["mse"],
        name=NAME,
        operands=(*LOSSES["mse"].operands, third),
        reference=scaled,
        functional=None,
        branch_coordinate=difference,
    )


@pytest.fixture
def loss(monkeypatch):
    monkeypatch.setitem(LOSSES, NAME, spec_of())
    return NAME


def test_inputs_of_three_operands_have_their_names_shapes_and_own_values(make_case, loss):
    case = make_case(loss, shape=(6, 8), distribution="normal")
    operands = make_inputs(case)
    assert {name: tuple(t.shape) for name, t in operands.items()} == case.shapes
    assert case.shapes == {"input": (6, 8), "target": (6, 8), "scale": (8,)}
    assert not torch.equal(operands["target"][0], operands["scale"])


def test_bytes_count_every_operand(make_case, loss):
    case = make_case(loss, shape=(6, 8), dtype="bfloat16")
    assert case.operand_bytes == {"input": 96, "target": 96, "scale": 16}
    assert case.stored_bytes == case.floor_bytes("forward") == 208
    assert case.floor_bytes("forward_backward") == 208 + 96


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_oracle_agrees_with_float64_autograd(make_case, loss, reduction):
    case = make_case(loss, shape=(5, 7), reduction=reduction, distribution="normal")
    operands = make_inputs(case)
    leaves = [operand.double().requires_grad_() for operand in operands.values()]
    value = scaled(*leaves, reduction=reduction)
    coming = make_grad_output(case) if reduction == "none" else torch.tensor(-3.0)
    gradients = torch.autograd.grad(value, leaves, coming.double())
    oracle = Oracle(case, operands)
    (truth,) = oracle.value()
    torch.testing.assert_close(truth.value, value.detach())
    for name, gradient in zip(operands, gradients, strict=True):
        (truth,) = oracle.gradient(name, coming)
        torch.testing.assert_close(truth.value, gradient)


@pytest.mark.parametrize(
    ("reduction", "dtype"),
    [
        ("mean", "float32"),
        ("none", "float16"),
        pytest.param("none", "bfloat16", marks=SLOW),
        pytest.param("sum", "float64", marks=SLOW),
    ],
)
def test_pytorchs_own_formula_passes_all_checks(make_case, loss, reduction, dtype):
    case = make_case(loss, reduction=reduction, dtype=dtype, distribution="normal")
    implementation = find_implementation("reference")
    results = put(case, implementation)
    assert {find_check(result.check).name for result in results} == {
        check.name
        for check in CHECKS.values()
        if case.spec.unit in check.units
        and check.asks(case)
        and check.concerns(implementation)
        and not check.missing(case)
    }
    assert "scale_gradient" in {result.check for result in results}
    assert [(r.check, r.reason) for r in results if r.status not in (PASS, WARN)] == []


def wrong_sign(input, target, scale):
    return scaled(input, target, regrade(scale, torch.neg), reduction="mean")


def no_gradient(input, target, scale):
    return scaled(input, target, scale.detach(), reduction="mean")


def later_operand_contiguous(input, target, scale):
    straight = torch.empty(scale.shape).stride()
    return scaled(input, target, scale.as_strided(scale.shape, straight), reduction="mean")


@pytest.mark.parametrize(
    ("wrong", "check", "found"),
    [
        (wrong_sign, "gradients", "scale_gradient"),
        (no_gradient, "numeric", "numeric"),
        (wrong_sign, "second_derivatives", "second_derivatives"),
        (wrong_sign, "coverage", "coverage"),
        (later_operand_contiguous, "layouts", "layouts"),
    ],
)
def test_mistakes_with_the_third_operand_are_found(make_case, loss, wrong, check, found):
    case = make_case(loss, dtype="float64", distribution="normal")
    implementation = Implementation("planted", "", lambda case: wrong)
    failed = {r.check for r in put(case, implementation, checks=[check]) if r.status == FAIL}
    assert failed == {found}


def test_operand_without_a_gradient_is_asked_for_none(make_case, monkeypatch):
    monkeypatch.setitem(LOSSES, NAME, spec_of(differentiable=False))
    case = make_case(NAME, distribution="normal")
    implementation = Implementation("planted", "", lambda case: no_gradient)
    checks = ["gradients", "coverage", "layouts", "accumulation", "numeric", "second_derivatives"]
    results = put(case, implementation, checks=checks)
    assert "scale_gradient" not in {result.check for result in results}
    assert [(r.check, r.reason) for r in results if r.status == FAIL] == []


def test_files_of_users_take_a_third_operand_by_name(make_case, loss):
    case = make_case(loss)
    taken = definition('def f(target, input, *, reduction="mean", scale=None): ...')
    refused = definition('def f(input, target, *, reduction="mean"): ...')
    assert unavailable(taken, case) is None
    assert unavailable(refused, case) == "f takes no scale"
    module: Any = SimpleNamespace(f=lambda *given, **named: (given, named))
    function = bound(module, binding(taken, case))
    assert function(1, 2, 3) == ((2, 1), {"reduction": "mean", "scale": 3})


def definition(source):
    return Source("f.py", Path("f.py"), "", "f", source.encode())


def unavailable(file, case):
    reason = file.unavailable(case.loss, case.reduction, case.spec, case.params)
    return reason and reason.text
