import threading
from functools import partial

import pytest
import torch

from losscli.runs.records import FAIL
from losscli.verify.checks.behaviour import LATER
from losscli.verify.selftest.surgery import graft
from tests.verify.judging import Into, reference, result_of

put = partial(result_of, "stale_results")


def kept_by(key):
    """Return an implementation that finds its losses again by a key of its operands."""
    kept = {}

    def loss(case, input, target):
        value = reference(case, input, target)
        return graft(kept.setdefault(key(input, target), value.detach().clone()), value)

    return lambda: loss


def into_a_ring():
    """Return losses in a ring of buffers, of which the last call overwrites the first."""
    rings, calls = {}, [0]

    def give(elements):
        ring = rings.setdefault(elements.shape, torch.empty(LATER - 1, *elements.shape))
        calls[0] += 1
        return ring[calls[0] % len(ring)].copy_(elements).detach()

    return lambda case, x, y: Into.apply(reference(case, x, y), give)


def zeros_on_other_threads():
    def loss(case, input, target):
        value = reference(case, input, target)
        return value if threading.current_thread() is threading.main_thread() else value * 0

    return loss


WRONG = {
    "by address": ("mean", lambda: "cached", "new contents in the input alone, loss: "),
    "the first forever": ("mean", kept_by(lambda *_: 0), "new contents in the input alone, loss: "),
    "by its input": ("mean", kept_by(lambda x, y: x.sum().item()), "new contents in the target"),
    "by a sample": (
        "mean",
        kept_by(lambda x, y: (*x.flatten()[::64].tolist(), *y.flatten()[::64].tolist())),
        "one new element in the input",
    ),
    "by sums": (
        "none",
        kept_by(lambda x, y: (x.double().sum().item(), y.double().sum().item())),
        "the input in another order, loss: ",
    ),
    "in a ring of buffers": ("none", into_a_ring, "call 1 of 24 in another thread, read after"),
    "not for other threads": ("mean", zeros_on_other_threads, "call 1 of 24 in another thread"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_kept_is_failed(make_case, name):
    reduction, make, reason = WRONG[name]
    result = put(make_case("mse", reduction=reduction), make())
    assert result.status == FAIL
    assert result.reason.startswith(reason), result.reason
