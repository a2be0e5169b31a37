import pytest
import torch

from losscli.implementations import Implementation
from losscli.judge.cause import MISTAKES, cause_of
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from losscli.verify.selftest.wrong import WRONG
from tests.handmade import case_of
from tests.parameters import naming
from tests.verify.judging import find_wrong

SHAPE = (9, 31)


def problem(loss="smooth_l1", **changes):
    case = case_of(loss, SHAPE, **{"distribution": "normal", "scale": 2.0, **changes})
    return Problem.of(case, third_party=ThirdParty())


def right(case):
    return lambda *operands: case.spec.reference(*operands, reduction=case.reduction, **case.params)


def cause(change, **changes):
    """Return the cause of a right loss that is changed, a case and operands in, a loss out."""
    made = Implementation("changed", "", lambda case: lambda *o: change(case, right(case), *o))
    return cause_of(problem(**changes), made)


def test_every_mistake_that_is_named_is_one_of_the_self_test():
    assert {f"wrong:{name}" for name in MISTAKES} <= {each.name for each in WRONG}


def test_a_mistake_is_named_by_its_results():
    for name in ("sum for mean", "ignored incoming", "1/rows for 1/N"):
        with naming(name):
            assert cause_of(problem(), find_wrong(name)) == MISTAKES[name]
    for name in ("maximum kept", "softmax alone"):
        of = problem("cross_entropy", scale=200.0 if name == "maximum kept" else 2.0)
        with naming(name):
            assert cause_of(of, find_wrong(name)) == MISTAKES[name]


CHANGES = {
    "": (lambda c, f, *o: f(*o), {}),  # it is right
    "its loss is 2 times the expected value: 2": (lambda c, f, *o: 2 * f(*o), {}),
    "its loss is -1 times the expected value: -1: the sign is wrong": (lambda c, f, *o: -f(*o), {}),
    "its loss is 0.25 everywhere": (lambda c, f, *o: 0 * f(*o) + 0.25, {"reduction": "none"}),
    "its loss is off by 0.5 everywhere": (lambda c, f, *o: f(*o) + 0.5, {"reduction": "none"}),
    "it uses other parameters: it is right with --param beta=0": (
        lambda c, f, *o: torch.nn.functional.l1_loss(*o),
        {},
    ),
    "its mean is only over the rows": (
        lambda c, f, x, y: torch.nn.functional.smooth_l1_loss(x, y, reduction="none").mean(0),
        {},
    ),
    "its loss is wrong only on the branch 'quadratic'": (
        lambda c, f, x, y: torch.where((x - y).abs() < 1, 2 * f(x, y), f(x, y)),
        {"reduction": "none"},
    ),
    "its loss is wrong only without a gradient": (
        lambda c, f, *o: f(*o) * (1 if torch.is_grad_enabled() else 3),
        {},
    ),
}


@pytest.mark.parametrize("text", CHANGES)
def test_the_shape_of_an_error_is_told(text):
    change, changes = CHANGES[text]
    assert cause(change, **changes) == text
