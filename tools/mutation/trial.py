"""Runs the checks of `losscli verify` on the kernels of a copy until one fails.

A separate program, because a kernel may crash or hang: `python -m tools.mutation.trial TRIAL`,
where TRIAL is JSON with the fields of Trial. It prints a line for each result, which shows
progress; the last line has the failure. The exit code distinguishes a failure from a crash.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from losscli.cli.options import resolve_config
from losscli.config.sizes import parse_size
from losscli.implementations import STRATEGIES
from losscli.losses import ROW_FORMS
from losscli.runs.records import FAIL, VerifyResult
from losscli.verify.runner import plan, run

from .mutation import Mutation


@dataclass(frozen=True)
class Trial:
    """The part of `losscli verify` that a trial runs."""

    device: str
    config: str
    losses: tuple[str, ...] = ()
    """What the config has, where an axis is empty."""
    dtypes: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    reductions: tuple[str, ...] = ()
    implementations: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()

    @classmethod
    def of(cls, mutation: Mutation, device: str) -> Trial:
        """Return the part that suffices to notice a mutation."""
        usual = _ON_A_GPU if device == "cuda" else _ON_A_CPU
        # Who asks for sizes of his own asks for enormous ones.
        reductions = ("mean",) if mutation.sizes else ("none", "mean")
        return cls(
            device,
            "smoke",
            mutation.losses,
            mutation.dtypes,
            mutation.sizes or usual,
            reductions,
            mutation.implementations,
            mutation.checks,
        )

    @classmethod
    def whole(cls, mutation: Mutation, device: str) -> Trial:
        """Return all that `losscli verify` runs for losscli's own kernels, with some losses."""
        is_row = any(loss in ROW_FORMS for loss in mutation.losses)
        strategies = () if is_row else STRATEGIES
        own = ("custom", *(f"custom:{strategy}" for strategy in strategies))
        return cls(device, "smoke", mutation.losses_of_survivor, implementations=own)


FOUND = 10
"""Exit code where a check failed: none that Python or a crash ends with."""
LARGE = 2**24
"""Elements from which a size is one of the large."""

_ON_A_CPU = ("37x101", "173x1001")
_ON_A_GPU = (
    "64x1024",  # whole packs and rows
    "37x101",  # rows of no whole packs
    "173x1004",  # rows of an odd number of packs, a block with threads to spare
    "37x4100",  # rows of more packs than a block has threads
    "2003x2011",  # several tiles a block, ragged
    "34190x4100",  # the cuts of large tensors, more blocks than post their sums
)


def results(trial: Trial) -> Iterator[VerifyResult]:
    """Yield the results of a trial, of the smallest cases first."""
    sizes = [size for text in trial.sizes for size in parse_size(text)]
    few = tuple(size for size in sizes if prod(size) < LARGE)
    # Apart, so that the checks that one size is enough for run on both.
    for some in dict.fromkeys((few, tuple(size for size in sizes if size not in few))):
        if not some and sizes:
            continue
        config = resolve_config(
            trial.config,
            device=trial.device,
            seed=None,
            losses=trial.losses,
            dtypes=trial.dtypes,
            sizes=some,
            reductions=trial.reductions,
            implementations=trial.implementations,
        )
        jobs = plan(config, trial.device, checks=trial.checks)
        for job in sorted(jobs, key=lambda job: job.case.elements):
            yield from run(job)


def main() -> int:
    given = json.loads(sys.argv[1])
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    trial = Trial(**fields)
    for result in results(trial):
        print(f"{result.check}: {result.implementation}, {result.case.name}", flush=True)
        if result.status == FAIL:
            print(result.reason, flush=True)
            return FOUND
    return 0


def command(trial: Trial) -> list[str]:
    return [sys.executable, "-m", "tools.mutation.trial", json.dumps(asdict(trial))]


if __name__ == "__main__":
    raise SystemExit(main())
