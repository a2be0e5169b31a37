import math
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import msgspec
import pytest
import torch

from losscli.implementations import Implementation, find_implementation
from losscli.implementations.gpu_requests import MakeGraphedCallables
from losscli.implementations.subject import bind
from losscli.losses import LOSSES, Tolerance
from losscli.runs.records import FAIL, PASS
from losscli.truth.problem import Problem
from losscli.verify import runner
from losscli.verify.checks import CHECKS, grad_outputs
from losscli.verify.checks.check import Tally
from losscli.verify.checks.grad_outputs import Due
from losscli.verify.geometry.element import small_case
from losscli.verify.repeating import line
from losscli.verify.selftest.surgery import graft, regrade
from tests.machinery import MACHINERY
from tests.verify import judging
from tests.verify.judging import find_wrong, reference


def put(case, implementation, check, beside=()):
    known = {implementation.name: beside}
    (result,) = judging.put(case, implementation, checks=[check], beside=known)
    return result


def planted(bind, **claims):
    return Implementation("planted", "", bind, **claims)


class _Guessing(torch.autograd.Function):
    """Writes gradients in forward for an incoming gradient that is expected."""

    @staticmethod
    def forward(ctx, case, expected, miss, *operands):
        with torch.enable_grad():
            leaves = tuple(operand.detach().requires_grad_() for operand in operands)
            loss = reference(case, *leaves)
        number = float(expected.get("number", 1.0))
        ctx.leaves, ctx.loss, ctx.number = leaves, loss, number
        ctx.expected, ctx.miss, ctx.used = expected, miss, False
        incoming = torch.full_like(loss, number)
        ctx.written = torch.autograd.grad(loss, leaves, incoming, retain_graph=True)
        return loss.detach()

    @staticmethod
    def backward(ctx, incoming):
        number = float(incoming.flatten()[0])
        ctx.expected["number"] = number
        hit = number == ctx.number and not ctx.used
        ctx.used = True
        return (None, None, None, *(ctx.written if hit else ctx.miss(ctx, incoming)))


def computed(ctx, incoming):
    return torch.autograd.grad(ctx.loss, ctx.leaves, incoming, retain_graph=True)


def scaled(ctx, incoming):
    return tuple(written * (incoming / ctx.number) for written in ctx.written)


def forgetful(ctx, incoming):
    """Takes what the last backward of any call has left for its own."""
    return computed(ctx, torch.full_like(incoming, ctx.number))


def guessing(miss):
    def bind(case):
        expected = {}
        return partial(_Guessing.apply, case, expected, miss)

    return planted(bind)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_verified_expectation_passes_steps(make_case, loss, reduction):
    result = put(make_case(loss, reduction=reduction), guessing(computed), "repeated_backward")
    assert (result.status, result.reason) == (PASS, "")


def test_wrong_expectation_that_is_scaled_or_not_noticed_fails_steps(make_case):
    assert (
        put(make_case(params={"beta": 0.7}), guessing(scaled), "repeated_backward").status == FAIL
    )
    result = put(make_case("mse"), guessing(forgetful), "repeated_backward")
    assert result.status == FAIL
    assert "grad_output" in result.reason


def shared_by_losses():
    """Spoil the gradients of a call that follows a call of another loss."""
    last = {}

    def bind(case):
        def function(input, target):
            factor = 1 if last.get("loss", case.loss) == case.loss else 2
            last["loss"] = case.loss
            return regrade(reference(case, input, target), lambda g: factor * g)

        return function

    return planted(bind)


def test_steps_calls_the_next_losses_of_the_run_in_between(make_case):
    case, losses = make_case("mse"), ("hinge", "mse", "smooth_l1")
    assert put(case, shared_by_losses(), "repeated_backward").status == PASS
    assert put(case, shared_by_losses(), "repeated_backward", beside=("mse",)).status == PASS
    result = put(case, shared_by_losses(), "repeated_backward", beside=losses)
    assert result.status == FAIL
    assert result.reason.startswith("two heads, smooth_l1 and hinge between them, step 1, ")
    assert result.interleaved == ("smooth_l1", "hinge")
    assert line(result).endswith('seed=0, interleaved=("smooth_l1", "hinge"))')


def test_verify_binds_no_loss_that_it_is_not_asked_for(make_case):
    bound = set()

    def bind(case):
        bound.add(case.loss)
        return find_implementation("reference").bind(case)

    trials = [(planted(bind), check) for check in CHECKS.values() if not check.missing(make_case())]
    beside = {implementation.name: ("mse",) for implementation, _ in trials}
    for job in runner.split(make_case("mse"), trials, beside=beside):
        assert FAIL not in {result.status for result in runner.run(job)}
    assert bound == {"mse"}


@pytest.mark.parametrize("name", ["last incoming", "habit"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_last_incoming_gradient_used_for_the_next_fails(make_case, loss, name):
    assert put(make_case(loss), find_wrong(name), "repeated_backward").status == FAIL


def test_moved_operand_and_copies_without_planned_temporaries_are_found(make_case):
    for name, check, told in (
        ("looks again", "mutated_data", "input.data in other strides, grad_output"),
        ("copies", "allocations", "memory besides the loss and the gradient of 256.0 KiB"),
    ):
        result = put(make_case("mse"), find_wrong(name), check)
        assert result.status == FAIL
        assert told in result.reason


def float64_sum(add):
    """Return an implementation that promises right sums and adds as told."""

    def bind(case):
        def function(*operands):
            elements = case.spec.reference(*operands, reduction="none", **case.params)
            if case.reduction == "none":
                return elements
            total = torch.tensor(add(elements.detach().flatten().tolist()), dtype=elements.dtype)
            total = total / elements.numel() if case.reduction == "mean" else total
            return graft(total, elements.mean() if case.reduction == "mean" else elements.sum())

        return function

    return planted(bind, exact_sums=True)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_inexact_float64_sums_fail(make_case, loss, reduction):
    case = make_case(loss, dtype="float64", reduction=reduction)
    assert put(case, float64_sum(math.fsum), "float64_sums").status == PASS
    result = put(case, float64_sum(sum), "float64_sums")
    assert result.status == FAIL
    assert "ulp off the exact sum of its own elements; allowed: 1 ulp" in result.reason


def test_a_tolerance_that_belongs_to_a_loss_loosens_its_cases_and_is_shown(make_case, monkeypatch):
    case = make_case("mse")
    assert Problem.of(case).tolerance == ""
    assert Problem.of(case, 6.0).tolerance == "6 ulp"
    own = Tolerance(2.0, "a logarithm of a sum")
    monkeypatch.setitem(LOSSES, "mse", replace(LOSSES["mse"], tolerance=own))
    shown = "8 ulp: a logarithm of a sum"
    assert Problem.of(case).tolerance == Problem.of(case, 6.0).tolerance == shown
    assert Problem.of(case, 9.0).tolerance == "9 ulp"


@pytest.mark.parametrize("loss", MACHINERY)
def test_the_usual_incoming_gradient_is_that_of_the_case(make_case, loss):
    for value, name in ((1.0, "1"), (0.5, "0.5")):
        case = msgspec.structs.replace(make_case(loss), grad_output=value)
        assert Problem.of(case).usual.name == name


def judge_graphed(case, implementation):
    """Judge the replays of make_graphed_callables alone; CPU stand-ins have to be in place."""
    problem, tally = Problem.of(small_case(case)), Tally()
    subject = bind(implementation, problem.case)
    incoming = [problem.filled(value).grad_output for value in grad_outputs.REPLAYS]
    answers = subject.send(
        MakeGraphedCallables(problem.call(problem.filled(1.0, problem.wrt)), incoming)
    )
    Due(problem, subject).judge_each(grad_outputs.REPLAYS, answers, "graphed, replay", tally)
    return tally.outcome


@pytest.fixture
def graphed_leaves(monkeypatch):
    """Stand in for make_graphed_callables, which warns as PyTorch's does; list what it is given."""
    given = []

    def make_graphed_callables(function, sample):
        given.extend(sample)
        warnings.warn("The AccumulateGrad node's stream does not match", UserWarning, stacklevel=1)

        def replay(*operands):
            given.extend(operands)
            return function(*operands)

        return replay

    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make_graphed_callables)
    return given


@pytest.mark.parametrize("loss", MACHINERY)
def test_warning_of_graphed_callables_is_not_blamed(make_case, graphed_leaves, loss):
    outcome = judge_graphed(make_case(loss), find_implementation("reference"))
    assert (outcome.status, outcome.reason) == (PASS, "")


def test_each_replay_of_graphed_callables_has_leaves_of_its_own(make_case, graphed_leaves):
    judge_graphed(make_case("mse"), find_implementation("reference"))
    assert len({id(leaf) for leaf in graphed_leaves}) == 2 * (1 + len(grad_outputs.REPLAYS))
    assert len({leaf.data_ptr() for leaf in graphed_leaves}) == 2
    assert all(leaf.is_leaf and leaf.requires_grad for leaf in graphed_leaves)


def test_graphed_callables_that_skip_the_incoming_gradient_fail(make_case, graphed_leaves):
    outcome = judge_graphed(make_case("mse"), find_wrong("ignored incoming"))
    assert outcome.status == FAIL
    assert outcome.reason.startswith("graphed, replay 4, grad_output 0.5, ")  # the worst


@pytest.mark.gpu
@pytest.mark.parametrize("check", ["repeated_backward", "captured_backward"])
@pytest.mark.parametrize("name", ["custom", "reference"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_steps_and_captures_on_a_gpu(make_case, loss, name, check):
    result = put(make_case(loss, device="cuda"), find_implementation(name), check)
    assert (result.status, result.reason) == (PASS, "")


@pytest.mark.gpu
def test_work_missing_from_a_capture_is_found_on_a_gpu(make_case):
    result = put(
        make_case("mse", device="cuda"), find_wrong("skips in a capture"), "captured_backward"
    )
    assert result.status == FAIL
    assert ", replay " in result.reason  # not for what it raised
