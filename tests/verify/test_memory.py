from functools import partial
from typing import Any

import pytest
import torch

from losscli.implementations import IMPLEMENTATIONS, find_implementation
from losscli.runs.records import FAIL, SKIPPED
from losscli.truth.blocks import BLOCK_ELEMENTS
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.needed_memory import Held, bytes_to_verify
from tests.parameters import naming
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


def in_the_input(case, input, target):
    return InPlace.apply(input, target)


def keeps_everything():
    kept = []

    def loss(case, input, target):
        kept.append(input.detach().clone())
        return reference(case, input, target)

    return loss


GROWTH = "expected no memory growth, but 100 more calls took "
SHARED = "loss of call 2: expected memory of its own, but it shares that of the loss of call 1"
BEHIND = "target is where memory after it was overwritten"
BETWEEN = "operands between large values, loss"
WRONG = {
    "writes over its input": (SUMS, lambda: "in place", "input was overwritten: expected "),
    "writes after its target": (SUMS, lambda: writes_after_its_target, BEHIND),
    "reads beyond the end": (SUMS, lambda: "beyond the end", "operands between NaN, loss: "),
    "reads beyond, drops NaN": (SUMS, lambda: reads_beyond_and_drops_nan, BETWEEN),
    "keeps everything": (("mean",), keeps_everything, GROWTH),
    "not fully written": (("none",), lambda: "uninitialised", "loss: expected "),
    "result in one buffer": (("none",), result_in_one_buffer, SHARED),
    "result in the input": (("none",), lambda: in_the_input, "shares that of the input"),
}
"""The reductions, what makes the implementation, and a part of the reason."""


@pytest.mark.parametrize("name", WRONG)
def test_misuse_of_memory_fails(make_case, name):
    reductions, make, reason = WRONG[name]
    for reduction in reductions:
        result = put(make_case("mse", reduction=reduction), make())
        assert result.status == FAIL, reduction
        assert reason in result.reason


GIB = 2**30
BLOCKS = 16 * 8 * BLOCK_ELEMENTS
CUSTOM = [IMPLEMENTATIONS["custom"]]
LARGE = (32768, 32768)


def test_plans_of_large_cases(make_case):
    cases: list[Any] = [
        # The operands and both gradients; in forward the memory of the reference.
        ("mse", {}, "forward_backward", Held(), 16 * GIB),
        ("mse", {}, "forward", Held(), 16 * GIB),
        # Without a reduction the loss and its gradient come on top.
        ("mse", {"reduction": "none"}, "forward_backward", Held(), 24 * GIB),
        # A row of targets, its value and magnitude in float64; its gradient is not the most.
        ("hinge", {}, "forward_backward", Held(), 12 * GIB + 32768 * (4 + 8 + 8)),
        # Two inputs and three results with both gradients.
        ("mse", {}, "forward_backward", Held(operands=2, results=3), (4 + 6) * 4 * GIB),
    ]
    for loss, changes, pass_, held, due in cases:
        case = make_case(loss, shape=LARGE, **changes)
        with naming(loss, changes, pass_, held):
            assert bytes_to_verify(case, pass_, CUSTOM, held) == due + BLOCKS


def test_temporaries_of_an_implementation_count_once_a_stream(make_case):
    case, small = make_case("mse", shape=LARGE), make_case("mse", shape=(10,))
    reference = [IMPLEMENTATIONS["reference"]]
    both = bytes_to_verify(case, "forward_backward", reference, Held(streams=2))
    one = bytes_to_verify(case, "forward_backward", reference)
    none = bytes_to_verify(case, "forward_backward", CUSTOM)
    assert one - none == both - one == case.spec.temporaries * 4 * GIB
    assert bytes_to_verify(small, "forward", CUSTOM) < 4096


def test_one_pass_may_fit_where_the_other_does_not(make_case):
    """Without a reduction both gradients are too much here, and the value is still checked."""
    case = make_case("mse", shape=(100, 100), reduction="none")
    reference = find_implementation("reference")
    free = bytes_to_verify(case, "forward", [reference])
    trials = tuple((reference, CHECKS[name]) for name in ("value", "gradients", "determinism"))
    job = runner.Checks(case, trials)
    results = list(runner.run(job, lambda device: free))
    assert [(r.check, r.status == SKIPPED) for r in results] == [
        ("value", False),
        ("gradients", True),
        ("determinism", True),
    ]
