"""Contents that change in place, and the right results for them."""

from unittest.mock import Mock

import pytest
import torch

from losscli.bench.passes import Contents
from losscli.bench.plan import Task
from losscli.cases.axes import DISTRIBUTIONS
from losscli.config.schema import Timing
from losscli.implementations import find_implementation
from losscli.implementations.requests import Forward
from losscli.implementations.subject import bind
from losscli.losses import LOSSES
from losscli.truth.gate import Gate
from losscli.truth.inputs import make_inputs
from tests.handmade import case_of, pair
from tests.machinery import MACHINERY
from tests.parameters import naming


def contents(loss="mse", shape=(16, 64), **changes):
    made = case_of(loss, shape, **changes)
    return Contents(Task(made, {}, Timing()), make_inputs(made))


def loss(held):
    return bind(find_implementation("reference"), held.case).send(Forward(held.operands))


def test_contents_are_restored_bit_for_bit():
    for distribution in DISTRIBUTIONS:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            with naming(distribution, dtype):
                held = contents(dtype=dtype, distribution=distribution)
                before = held.prediction.clone()
                held.change()
                assert not torch.equal(held.prediction, before)
                held.change()
                assert torch.equal(held.prediction, before)


def test_subnormal_contents_are_restored_and_values_too_large_to_double_are_negated():
    for values in ([6e-8, -6e-8, 1.8e-7, 0.0], [100.0, -64.5]):
        held = torch.tensor(values, dtype=torch.float16)
        before = held.clone()
        of = case_of("mse", (len(values),), dtype="float16")
        contents_of = Contents(Task(of, {}, Timing()), pair(held, torch.zeros_like(held)))
        contents_of.change()
        assert values[0] < 1 or torch.equal(held, -before)
        contents_of.change()
        assert torch.equal(held, before)


# In float16 the losses of some formulas overflow before and after the change.
CASES = [(loss, "float32") for loss in LOSSES] + [
    (loss, dtype) for loss in MACHINERY for dtype in ("float16", "bfloat16")
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_loss_cached_before_the_change_is_wrong(name, dtype):
    for distribution in DISTRIBUTIONS:
        with naming(distribution):
            held = contents(loss=name, dtype=dtype, distribution=distribution)
            remembered = loss(held)
            assert held.gate.judge("theirs", "forward", remembered).status == "pass"
            held.change()
            # An exponential of heavy tails is beyond float16 before the change and after.
            same = name == "poisson_nll" and remembered.isinf()
            # Ratios of impulses are beyond the bounds before and after.
            same = same or (name, distribution) == ("policy", "impulse")
            status = "pass" if same else "fail"
            assert held.gate.judge("theirs", "forward", remembered).status == status
            assert held.gate.judge("theirs", "forward", loss(held)).status == "pass"
            held.change()
            assert held.gate.judge("theirs", "forward", remembered).status == "pass"


@pytest.mark.parametrize("name", LOSSES)
def test_a_gradient_is_judged_after_the_contents_have_come_back(name):
    for dtype in ("float32", "float64"):
        held = contents(loss=name, dtype=dtype)
        assert held.gate.judge("theirs", "forward", loss(held)).status == "pass"
        held.change()
        held.change()
        leaf, *others = (each.clone() for each in held.operands.values())
        leaf.requires_grad_()
        value = LOSSES[name].reference(leaf, *others, reduction="mean", **held.case.params)
        (gradient,) = torch.autograd.grad(value, leaf)
        verdict = held.gate.judge("theirs", "forward_backward", value.detach(), gradient)
        assert verdict.status == "pass", verdict.reason


def test_touch_keeps_the_address_and_raises_the_version():
    held = contents()
    place, version = held.prediction.data_ptr(), held.prediction._version
    before = held.prediction.clone()
    held.touch()
    assert held.prediction._version > version
    assert torch.equal(held.prediction, before)
    held.change()
    assert held.prediction.data_ptr() == place


def test_empty_contents_can_be_changed():
    held = contents(shape=(0,), reduction="sum")
    held.touch()
    held.change()
    assert held.prediction.numel() == 0


def test_bits_that_were_right_are_not_judged_again(monkeypatch):
    held = contents()
    right, wrong = loss(held), loss(held) + 1
    assert held.judge("theirs", "forward", right).status == "pass"
    assert held.judge("theirs", "forward", wrong).status == "fail"
    elsewhere = Contents(Task(held.case, {}, Timing(), right=held.right), make_inputs(held.case))
    monkeypatch.setattr(Gate, "judge", lambda *_, **__: Mock(status="warn"))
    assert elsewhere.judge("theirs", "forward", right.clone()).status == "pass"
    assert elsewhere.judge("theirs", "forward", wrong).status == "warn"
    assert elsewhere.judge("another", "forward", right).status == "warn"
    assert elsewhere.judge("theirs", "forward", right.double()).status == "warn"
    assert elsewhere.judge("theirs", "forward_backward", right, right).status == "warn"
    elsewhere.change()
    assert elsewhere.judge("theirs", "forward", right).status == "warn"
    elsewhere.change()
    assert elsewhere.judge("theirs", "forward", right).status == "pass"
