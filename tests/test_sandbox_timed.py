"""A worker's samples: each is taken on the contents that the judge has named for it."""

import pytest
import torch

from losscli.implementations import IMPLEMENTATIONS
from losscli.implementations.local import LocalSubject
from losscli.implementations.requests import toggle
from losscli.implementations.sandbox.timed import Flip, TimedPass
from losscli.implementations.timer import CpuTimer
from tests.handmade import case

SHAPE = (6, 4)
FLIPS = [Flip(0, 2), Flip(1, 5), Flip(4, 6), Flip(1, 5)]


class Again(CpuTimer):
    """Takes each batch twice, as a timer on a GPU does whose wait was too short."""

    def measure(self, queue):
        samples = [super(Again, self).measure(queue) for _ in range(2)]
        return samples[-1]


@pytest.mark.parametrize("keep", range(len(FLIPS)))
def test_a_batch_that_is_taken_again_leaves_the_contents_that_the_judge_expects(keep):
    small = case(shape=SHAPE, target_shape=SHAPE, device="cpu")
    input, target = torch.rand(SHAPE), torch.rand(SHAPE)
    expected = input.clone()
    timed = TimedPass(
        LocalSubject.bind(IMPLEMENTATIONS["reference"], small),
        "forward",
        {"input": input, "target": target},
        evicts=False,
        captured=False,
    )
    timed.timer = Again()
    timed.warm_up()

    found = timed.samples(FLIPS, keep)

    losses = []
    for flip in FLIPS:
        toggle(expected[flip.start : flip.stop], small)
        losses.append(torch.nn.functional.mse_loss(expected, target))
    assert found.loss is not None
    assert torch.equal(found.loss, losses[keep])
    assert torch.equal(input, expected)
