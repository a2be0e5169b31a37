"""Several backward passes, an existing `.grad`, and differences of the loss itself."""

import itertools
from dataclasses import replace

import pytest
import torch

from losscli.implementations import find_implementation
from losscli.losses import LOSSES, REDUCTIONS
from losscli.runs.records import FAIL, PASS
from losscli.verify.checks import CHECKS
from losscli.verify.checks.branches import has_exact_values
from losscli.verify.selftest.surgery import graft, regrade
from losscli.verify.selftest.wrong import find_wrong
from tests.machinery import MACHINERY
from tests.verify import judging
from tests.verify.judging import reference

NEW = ("retained", "accumulation", "numeric")
ON_A_CPU = [name for name, check in CHECKS.items() if not check.needs_gpu]


def put(case, implementation, checks):
    return {r.check: r for r in judging.put(case, implementation, checks=checks)}


def put_function(case, function, checks):
    return {r.check: r for r in judging.judge(case, function, checks=checks)}


def never_the_same():
    """Return a function that is right within the tolerances, by other bits each time."""
    factors = itertools.cycle([1.0, 1 + 2**-23, 1 - 2**-24])

    def function(case, *operands):
        factor = next(factors)
        return regrade(reference(case, *operands), lambda g: g * factor)

    return function


def test_nondeterministic_backward_is_no_failure(make_case):
    results = put_function(make_case("mse"), never_the_same(), ("retained", "accumulation"))

    assert {r.status for r in results.values()} == {PASS}


@pytest.mark.parametrize(
    ("name", "checks"),
    [("scales in place", ["retained", "steps"]), ("clears .grad", ["accumulation"])],
)
@pytest.mark.parametrize("loss", MACHINERY)
def test_mistake_is_found_by_the_expected_checks(make_case, loss, name, checks):
    wrong = find_wrong(name)

    results = put(make_case(loss, shape=(37, 101)), wrong, ON_A_CPU if loss == "mse" else checks)

    assert [r.check for r in results.values() if r.status == FAIL] == checks


def test_result_overwritten_by_a_later_backward_fails(make_case):
    class Workspace(torch.autograd.Function):
        """Hands the same memory out each time."""

        @staticmethod
        def forward(ctx, loss, input):
            ctx.space = torch.empty_like(input)
            ctx.share = 2 / input.numel()
            ctx.save_for_backward(input)
            return loss.clone()

        @staticmethod
        def backward(ctx, incoming):
            torch.mul(ctx.saved_tensors[0], incoming * ctx.share, out=ctx.space)
            return None, ctx.space.view_as(ctx.space)

    def function(case, input, target):
        difference = input - target
        return Workspace.apply((difference.detach() ** 2).mean(), difference)

    (result,) = put_function(make_case("mse"), function, ["retained"]).values()

    assert result.status == FAIL
    assert result.reason.startswith("what backward 1 returned, after 4 through one graph, ")


def test_graph_that_does_not_outlive_its_first_backward_fails(make_case):
    class UsedUp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, loss):
            ctx.buffers = [torch.ones(())]
            return loss.clone()

        @staticmethod
        def backward(ctx, incoming):
            return incoming * ctx.buffers.pop()

    def function(case, input, target):
        return UsedUp.apply(reference(case, input, target))

    (result,) = put_function(make_case("mse"), function, ["retained"]).values()

    assert (result.status, result.reason) == (FAIL, "raised IndexError: pop from empty list")


@pytest.mark.parametrize(
    ("name", "check", "start", "end"),
    [
        ("scales in place", "retained", "backward ", ""),
        (
            *("clears .grad", "accumulation", ".grad of the input: expected "),
            ".grad held -0.75 times the gradient before the call",
        ),
        (
            *("absent gradient", "accumulation", "expected gradients of both operands, "),
            "got none of one",
        ),
    ],
)
def test_failure_names_its_backward_or_grad(make_case, name, check, start, end):
    (result,) = put(make_case("mse"), find_wrong(name), [check]).values()

    assert result.status == FAIL
    assert result.reason.startswith(start)
    assert result.reason.endswith(end)
    assert check != "retained" or " through one graph, incoming gradient " in result.reason


@pytest.mark.parametrize("loss", MACHINERY)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("factor", [None, -1.0, 0.0])
def test_gradient_that_differs_from_finite_differences_fails(make_case, loss, reduction, factor):
    case = make_case(loss, reduction=reduction, dtype="float64")
    # Differences of a loss of at most second degree have no truncation.
    subtle = 1 + (1e-6 if has_exact_values(case) else 1e-3)

    def function(case, *operands):
        return regrade(
            reference(case, *operands), lambda g: g * (subtle if factor is None else factor)
        )

    (result,) = put_function(case, function, ["numeric"]).values()

    assert result.status == FAIL
    assert " the loss changes by " in result.reason


def test_a_reference_with_a_wrong_derivative_misleads_the_oracle_but_not_the_differences(
    make_case, monkeypatch
):
    honest = LOSSES["mse"]

    def mistaken(input, target, **settings):
        loss = honest.reference(input, target, **settings)
        return graft(loss, 2 * loss)

    monkeypatch.setitem(LOSSES, "mse", replace(honest, reference=mistaken))

    results = put_function(make_case("mse", dtype="float64"), reference, ("gradients", "numeric"))

    assert {check: r.status for check, r in results.items()} == {
        "input_gradient": PASS,
        "target_gradient": PASS,
        "numeric": FAIL,
    }


@pytest.mark.parametrize("beta", [0.0, 1e-3, 1 / 64, 0.5])
def test_differences_avoid_kinks(make_case, beta):
    case = make_case("smooth_l1", params={"beta": beta}, dtype="float64")

    (result,) = put(case, find_implementation("reference"), ["numeric"]).values()

    assert (result.status, result.reason) == (PASS, "")
