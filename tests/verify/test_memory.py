"""Implementations with right results that misuse memory."""

from functools import partial

import pytest
import torch

from losscli.runs.records import FAIL, PASS, WARN
from losscli.verify.selftest.surgery import graft
from tests.verify.judging import Into, reference, result_of

SUMS = ("mean", "sum")


put = partial(result_of, "memory")


def writes_after_its_target(case, input, target):
    last = target.storage_offset() + target.numel()
    if last < target.untyped_storage().nbytes() // target.element_size():
        target.detach().as_strided((1,), (1,), last).zero_()
    return reference(case, input, target)


def reads_beyond_and_drops_nan(case, input, target):
    value = reference(case, input, target)
    last = input.storage_offset() + input.numel()
    if last < input.untyped_storage().nbytes() // input.element_size():
        value = value + input.detach().as_strided((1,), (1,), last).nan_to_num(0).sum()
    return value


def result_in_one_buffer():
    kept = []

    def give(elements):
        if not kept:
            kept.append(torch.empty_like(elements))
        return kept[0].copy_(elements).detach()

    def loss(case, input, target):
        return Into.apply(reference(case, input, target), give)

    return loss


class InPlace(torch.autograd.Function):
    """Elements of mse, written into the input's own memory: a view of it is returned."""

    @staticmethod
    def forward(ctx, input, target):
        ctx.save_for_backward(input - target)
        return input.detach().view(-1).view(input.shape)

    @staticmethod
    def backward(ctx, grad_output):
        (difference,) = ctx.saved_tensors
        return 2 * difference * grad_output, -2 * difference * grad_output


def keeps_everything():
    kept = []

    def loss(case, input, target):
        kept.append(input.detach().clone())
        return reference(case, input, target)

    return loss


WRONG = {
    "writes over its input": (SUMS, lambda: "in place", "input was overwritten: expected "),
    "writes after its target": (
        SUMS,
        lambda: writes_after_its_target,
        "target is where memory after it was overwritten",
    ),
    "reads beyond the end": (
        SUMS,
        lambda: "beyond the end",
        "operands between NaN, loss: ",
    ),
    "reads beyond, drops NaN": (
        SUMS,
        lambda: reads_beyond_and_drops_nan,
        "operands between large values, loss",
    ),
    "keeps everything": (
        ("mean",),
        keeps_everything,
        "expected no memory growth, but 100 more calls took ",
    ),
    "not fully written": (("none",), lambda: "uninitialised", "loss: expected "),
    "result in one buffer": (
        ("none",),
        result_in_one_buffer,
        "loss of call 2: expected memory of its own, but it shares that of the loss of call 1",
    ),
    "result in the input": (
        ("none",),
        lambda: lambda case, x, y: InPlace.apply(x, y),
        "shares that of the input",
    ),
}
"""The reductions, what makes the implementation, and a part of the reason."""


@pytest.mark.parametrize("name", WRONG)
def test_misuse_of_memory_fails(make_case, name):
    reductions, make, reason = WRONG[name]
    for reduction in reductions:
        result = put(make_case("mse", reduction=reduction), make())

        assert result.status == FAIL, reduction
        assert reason in result.reason


@pytest.mark.parametrize("every", [2, 5, 7])
def test_nondeterminism_within_the_tolerance_passes(make_case, every):
    runs = [0]

    def seldom(case, input, target):
        runs[0] += 1
        value = reference(case, input, target)
        return graft(value.detach() * (1 + (runs[0] % every == 0) * 2**-23), value)

    assert put(make_case("mse"), seldom).status in (PASS, WARN)
