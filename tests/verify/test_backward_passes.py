import itertools
from dataclasses import replace

import pytest
import torch

from losscli.cases.axes import DTYPES
from losscli.implementations import find_implementation
from losscli.losses import LOSSES, REDUCTIONS
from losscli.runs.records import FAIL, PASS, SKIPPED
from losscli.verify.checks import CHECKS
from losscli.verify.checks.branches import has_exact_values
from losscli.verify.selftest.surgery import graft, regrade
from tests.machinery import MACHINERY
from tests.parameters import naming
from tests.verify import judging
from tests.verify.judging import find_wrong, judge, reference

NEW = ("retain_graph", "accumulation", "numeric")
ON_A_CPU = [name for name, check in CHECKS.items() if not check.needs_gpu]


def put(case, implementation, checks):
    return {r.check: r for r in judging.put(case, implementation, checks=checks)}


def put_function(case, function, checks):
    return {r.check: r for r in judge(case, function, checks=checks)}


@pytest.mark.parametrize(
    ("name", "checks"),
    [("scales in place", ["retain_graph"]), ("clears .grad", ["accumulation"])],
)
@pytest.mark.parametrize("loss", MACHINERY)
def test_mistake_is_found_by_the_expected_checks(make_case, loss, name, checks):
    wrong = find_wrong(name)
    results = put(make_case(loss, shape=(37, 101)), wrong, ON_A_CPU if loss == "mse" else checks)
    assert [r.check for r in results.values() if r.status == FAIL] == checks


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


class UsedUp(torch.autograd.Function):
    """Has what it saved for one backward."""

    @staticmethod
    def forward(ctx, loss):
        ctx.buffers = [torch.ones(())]
        return loss.clone()

    @staticmethod
    def backward(ctx, incoming):
        return incoming * ctx.buffers.pop()


def in_workspace(case, input, target):
    difference = input - target
    return Workspace.apply((difference.detach() ** 2).mean(), difference)


def test_result_that_is_overwritten_or_a_graph_that_is_used_up_fails(make_case):
    for function, told in (
        (in_workspace, "what backward 1 returned, after 4 through one graph, "),
        (lambda *of: UsedUp.apply(reference(*of)), "raised IndexError: pop from empty list"),
    ):
        (result,) = put_function(make_case("mse"), function, ["retain_graph"]).values()
        assert result.status == FAIL
        assert result.reason.startswith(told)


@pytest.mark.parametrize(
    ("name", "check", "start", "end"),
    [
        ("scales in place", "retain_graph", "backward ", ""),
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
    assert check != "retain_graph" or " through one graph, grad_output " in result.reason


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
    legitimate = LOSSES["mse"]

    def mistaken(input, target, **settings):
        loss = legitimate.reference(input, target, **settings)
        return graft(loss, 2 * loss)

    monkeypatch.setitem(LOSSES, "mse", replace(legitimate, reference=mistaken))
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


SECOND = ("second_derivatives",)


class Curved(torch.autograd.Function):
    """mse of the right gradient, whose own gradient has the wrong sign."""

    @staticmethod
    def forward(ctx, input, target):
        ctx.save_for_backward(input, target)
        return ((input - target) ** 2).mean()

    @staticmethod
    def backward(ctx, grad_output):
        input, target = ctx.saved_tensors
        gradient = 2 * (input - target) / input.numel() * grad_output
        turned = 2 * gradient.detach() - gradient
        return turned, -turned


def test_second_derivatives_of_zero_or_of_the_wrong_sign_fail(make_case):
    for wrong, told in (
        ("no curvature", "of the input: expected terms up to"),
        (lambda case, x, y: Curved.apply(x, y), "of the input: expected"),
    ):
        (result,) = judge(make_case("mse"), wrong, checks=SECOND)
        assert result.status == FAIL
        assert told in result.reason


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target):
        return (input - target).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_output):
        return grad_output.expand(8, 24), grad_output.expand(8, 24)


def stubborn(case, input, target):
    def refuse(grad):
        if grad.requires_grad:
            raise NotImplementedError("once is enough")

    loss = reference(case, input, target)
    loss.register_hook(refuse)
    return loss


def test_implementation_without_second_derivatives_is_skipped_with_the_reason(make_case):
    for function, why in (
        (lambda case, x, y: Once.apply(x, y), "its gradients have no history"),
        (stubborn, "raised NotImplementedError: once is enough"),
    ):
        (result,) = judge(make_case("mse", shape=(8, 24)), function, checks=SECOND)
        assert result.status == SKIPPED
        assert result.reason == f"no second derivatives: {why}"


@pytest.mark.parametrize("loss", MACHINERY)
def test_pytorchs_own_passes_next_to_a_kink(make_case, loss):
    for dtype, name in itertools.product(DTYPES, ["reference", "functional"]):
        with naming(dtype, name):
            params = {p.name: 0.1 for p in LOSSES[loss].parameters}
            case = make_case(loss, dtype=dtype, params=params, distribution="boundary")
            implementation = find_implementation(name)
            results = judging.put(case, implementation, checks=SECOND)
            assert FAIL not in {result.status for result in results}
            assert {result.code for result in results if result.reason} <= {
                "same_error_as_pytorch",
                "not_applicable",
            }
