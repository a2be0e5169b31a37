"""Fabricated runs of a machine with known noise and known slowdowns."""

import math
import random

from msgspec.structs import replace

from losscli.bench.statistics import summarize
from tests.handmade import case, result, run

LOSSES = ("mse", "smooth_l1")
SIZES = (64, 256, 1024, 4096)
NAMES = ("reference", "functional", "custom")
PARAMETERS = {"mse": {}, "smooth_l1": {"beta": 1.0}}


def machine(
    seed, *, between=0.0, shared=0.0, within=0.01, slowed=None, by=1.0, bursts=0.0, samples=40
):
    """Return a run: two losses, four sizes, both passes, three implementations.

    Args:
        seed: of all its noise.
        between: standard deviation of what befalls one implementation in a whole run.
        shared: of what befalls all implementations of a case and pass alike.
        within: that of a sample.
        slowed: the implementation that a factor makes slower,
        by: which is this.
        bursts: share of the cases during which the machine is busy with something else.
        samples: of each.
    """
    noise = random.Random(seed)
    results = []
    for loss in LOSSES:
        for size in SIZES:
            for pass_ in ("forward", "forward_backward"):
                burst = 1.3 if noise.random() < bursts else 1.0
                burst *= math.exp(noise.gauss(0, shared))
                for name in NAMES:
                    median = size * 1e-6 * burst * math.exp(noise.gauss(0, between))
                    median *= by if name == slowed else 1.0
                    times = [median * math.exp(noise.gauss(0, within)) for _ in range(samples)]
                    where = case(
                        loss=loss,
                        shape=(size, size),
                        target_shape=(size, size),
                        params=PARAMETERS[loss],
                    )
                    results.append(result(name, pass_, case=where, seconds=summarize(times)))
    return run(*results)


def elsewhere(made, **facts):
    return replace(made, environment={**made.environment, **facts})
