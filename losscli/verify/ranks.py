"""Verification over ranks: all run the same checks at once, and have to come to the same results.

Every rank judges whole operands, so that each check is that of one process;
:mod:`losscli.implementations.wholes` cuts them for the rank where the implementation is called.
"""

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
    """Yield the results of a job, on every rank the worst one's; RankError if ranks disagree."""
    for result in runner.run(job, partial(free_bytes, group)):
        yield agreed(result, group)


def agreed(result: VerifyResult, group: Group) -> VerifyResult:
    """Return the first failure of any rank, or else the result of the first rank."""
    told = group.gather(
        "has finished a check", (result.check, result.status, result.reason, result.code)
    )
    if len({check for check, *_ in told}) > 1:
        disagree(group, [f"is at the check {check}" for check, *_ in told])
    rank = next((rank for rank, (_, status, *_) in enumerate(told) if status == FAIL), 0)
    _, status, reason, code = told[rank]
    if rank:
        reason = f"on rank {rank}: {reason}"
    return replace(result, status=status, reason=reason, code=code)


def shrinker(group: Group) -> Shrinker:
    """Return what shrinks failures, as long on every rank."""
    return Shrinker(clock=lambda: largest(group, time.monotonic()), run=partial(run, group=group))
