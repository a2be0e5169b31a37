"""Verification over ranks: all run the same checks, on whole operands, and agree on the results."""

import time
from collections.abc import Generator
from functools import partial

from msgspec.structs import replace

from losscli.ranks.group import Group, disagree, free_bytes, largest
from losscli.runs.records import FAIL, VerifyResult
from losscli.verify import runner
from losscli.verify.runner import Checks
from losscli.verify.shrink import Shrinker


def run(job: Checks, group: Group) -> Generator[VerifyResult, None, None]:
    """Yield each result of a job, as agreed; RankError if the ranks run different checks."""
    for result in runner.run(job, partial(free_bytes, group)):
        yield agreed(result, group)


def agreed(result: VerifyResult, group: Group) -> VerifyResult:
    """Return the first rank's failure, or else the first rank's result."""
    own = (result.check, result.status, result.reason, result.code)
    told = group.gather("has finished a check", own)
    if len({check for check, *_ in told}) > 1:
        disagree(group, [f"is at the check {check}" for check, *_ in told])
    rank = next((rank for rank, (_, status, *_) in enumerate(told) if status == FAIL), 0)
    _, status, reason, code = told[rank]
    if rank:
        reason = f"on rank {rank}: {reason}"
    return replace(result, status=status, reason=reason, code=code)


def shrinker(group: Group) -> Shrinker:
    """Return a shrinker whose time limit is the same on all ranks."""
    return Shrinker(clock=lambda: largest(group, time.monotonic()), run=partial(run, group=group))
