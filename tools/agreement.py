"""Compares losscli's medians with Triton's do_bench on a GPU: `python -m tools.agreement`.

Both time the same calls with events and a cold L2. Each case takes more than 100 us, so a call's
overhead does not matter. The exit code is 1 where they differ by more than 3 %, 4 without a GPU or
Triton.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from losscli.cases.axes import DType, PassName

EXIT_APART, EXIT_UNFIT = 1, 4
ALLOWED = 0.03
SHORTEST = 100e-6
"""Seconds; shorter cases are not compared."""
ROUNDS = 3
"""Each timer's median is the middle one of so many runs, in turn with the other's."""

CASES: tuple[tuple[str, DType, PassName, str], ...] = (
    ("mse", "float32", "forward", "custom"),
    ("smooth_l1", "float32", "forward_backward", "custom"),
    ("hinge", "bfloat16", "forward_backward", "custom"),
    ("mse", "float32", "forward", "reference"),
    ("mse", "float32", "forward_backward", "functional"),
    ("hinge", "bfloat16", "forward", "reference"),
)
"""Loss, dtype, pass and implementation: one launch and many, with and without allocations."""
SIZE = (16384, 16384)


@dataclass(frozen=True)
class Pair:
    """A case's seconds by both timers."""

    name: str
    losscli: float
    do_bench: float

    @property
    def difference(self) -> float:
        """The relative difference of losscli's time from Triton's."""
        return self.losscli / self.do_bench - 1

    @property
    def agrees(self) -> bool:
        """Whether the two times are close, and the case long enough to compare."""
        return abs(self.difference) <= ALLOWED and self.do_bench >= SHORTEST


def measure(device: str, do_bench: Callable[..., Any]) -> Iterator[Pair]:
    from losscli.bench.plan import plan
    from losscli.bench.runner import Runner
    from losscli.config.schema import Config, LossChoice, Timing

    runner = Runner(device)
    for loss, dtype, pass_, implementation in CASES:
        config = Config(
            losses=(LossChoice(loss),),
            sizes=(SIZE,),
            dtypes=(dtype,),
            passes=(pass_,),
            implementations=(implementation,),
            timing=Timing(min_time=0.5, max_time=2.0),
        )
        (task,) = plan(config, device)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            (result,) = runner.run(task)
            if result.seconds is None:
                raise SystemExit(f"{implementation}, {result.case.name}: {result.reason}")
            ours.append(result.seconds.median)
            theirs.append(_seconds(do_bench, task.case, pass_, implementation))
        yield Pair(f"{task.case.name}, {pass_}, {implementation}", median(ours), median(theirs))


def _seconds(
    do_bench: Callable[..., Any], case: Any, pass_: PassName, implementation: str
) -> float:
    """Let do_bench time the call that losscli times."""
    from losscli.implementations.builtin import find_implementation
    from losscli.implementations.local import LocalSubject
    from losscli.implementations.passes import PassFactory, gradients
    from losscli.truth.inputs import make_inputs

    passes = PassFactory(case, pass_, make_inputs(case).values())
    timed = LocalSubject.bind(find_implementation(implementation), case).repeated(passes)
    with gradients(pass_):
        milliseconds: float = do_bench(timed, warmup=100, rep=500, return_mode="median")
    return milliseconds * 1e-3


def report(pairs: Iterator[Pair]) -> int:
    """Print a line per case; return the exit code."""
    apart = 0
    for pair in pairs:
        apart += not pair.agrees
        times = (
            f"{pair.losscli * 1e6:9.1f} us {pair.do_bench * 1e6:9.1f} us {pair.difference:+7.2%}"
        )
        print(f"{pair.name:60} {times}{'' if pair.agrees else '  APART'}", flush=True)
    print(f"{apart} of {len(CASES)} cases are further apart than {ALLOWED:.0%}")
    return EXIT_APART if apart else 0


def main() -> int:
    if not torch.cuda.is_available():
        print("skipped: there is no GPU")
        return EXIT_UNFIT
    try:
        testing = importlib.import_module("triton.testing")
    except ImportError:
        print("skipped: there is no Triton")
        return EXIT_UNFIT
    return report(measure("cuda:0", testing.do_bench))


if __name__ == "__main__":
    sys.exit(main())
