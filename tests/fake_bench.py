"""A timer, limits and conditions that a test decides, for a bench without a clock."""

from dataclasses import replace
from typing import Any, cast

from losscli.bench.conditions import Conditions
from losscli.bench.limit import TIMED, Limit
from losscli.bench.plan import plan
from losscli.bench.runner import Runner
from losscli.config.schema import Config, LossChoice, Timing
from tests.fake_time import ClockTimer

TIMING = Timing(min_time=0.0, max_time=60.0)


class StepTimer(ClockTimer):
    """Takes 1 s a call; 2 s for the reference."""

    def measure(self, queue):
        super().measure(queue)
        return [2.0 if warm.name == "reference" else 1.0 for warm in queue]


class FixedLimits:
    """Finds one limit for all, or another the second time; stores its arguments."""

    def __init__(self, limit, second=None, mover=None):
        self.limit, self.second, self.mover = limit, second or limit, mover
        self.asked = []

    def find(self, case, pass_, timer, reads, again=False, timing=TIMED):
        self.asked.append((pass_, [tuple(tensor.shape) for tensor in reads]))
        return self.second if again else self.limit

    def contender(self, case, pass_, timer, reads):
        return self.mover


def mean_square(input, target):
    return ((input - target) ** 2).mean()


class Seen(Conditions):
    """Conditions that stay as they are."""

    def __init__(self, slowed=False, **record):
        self._slowed, self._record = slowed, record

    def slowed(self):
        return self._slowed

    def record(self):
        return self._record


def run(
    timer,
    free=2**40,
    limits=None,
    device="cpu",
    conditions=None,
    make_timer=None,
    notify=print,
    limited=True,
    peaks=True,
    **changes,
):
    """Run a small config, some of whose fields may be changed."""
    fields: dict[str, Any] = {
        "losses": (LossChoice("mse"),),
        "sizes": ((8, 8),),
        "implementations": ("reference", "functional"),
        "timing": TIMING,
    }
    config = Config(**(fields | changes))
    runner = Runner(
        device,
        free_bytes=lambda device: free,
        make_timer=make_timer or (lambda device, evicts, mode: timer),
        limits=cast(Any, limits or FixedLimits(Limit())),
        conditions=conditions or Seen(),
        notify=notify,
    )
    tasks = [replace(task, limited=limited, peaks=peaks) for task in plan(config, device)]
    return [result for task in tasks for result in runner.run(task)]
