"""Puts implementations to every case of a config; a result at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from losscli.cases import Case, excluded, expand
from losscli.config.schema import Config
from losscli.environment import free_bytes
from losscli.implementations import Implementation
from losscli.inputs import make_inputs
from losscli.results import FAIL, SKIPPED, VerifyResult
from losscli.units import format_bytes
from losscli.verify.checks import CHECKS, Check
from losscli.verify.memory import needed_bytes
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject, SubjectError


@dataclass(frozen=True)
class Job:
    """One case and what is put to it."""

    case: Case
    trials: tuple[tuple[Implementation, tuple[Check, ...]], ...]
    loosened: float | None = None


def plan(config: Config, device: str, implementations: tuple[Implementation, ...]) -> list[Job]:
    """Return the jobs of a config, without those that its rules exclude."""
    loosened = {tolerance.case: tolerance.ulp for tolerance in config.tolerances}
    jobs = []
    for case in expand(config, device):
        trials = []
        for implementation in implementations:
            checks = tuple(
                check
                for check in CHECKS.values()
                if check.pass_ in config.passes
                and not excluded(config.exclude, case, implementation.name, check.pass_)
            )
            if checks:
                trials.append((implementation, checks))
        if trials:
            jobs.append(Job(case, tuple(trials), loosened.get(case.name)))
    return jobs


def run(jobs: list[Job], available: Callable[[str], int] = free_bytes) -> Iterator[VerifyResult]:
    """Yield each result as it is there. Nothing an implementation does wrong ends the run.

    What cannot fit is skipped before anything of it is allocated; ``available`` tells the bytes
    that a device has left.
    """
    for job in jobs:
        yield from _run_job(job, available)


def obstacle(
    case: Case, implementation: Implementation, checks: tuple[Check, ...], free: int
) -> str | None:
    """Say why an implementation cannot be put to a case, or None."""
    reason = implementation.unavailable(case)
    if reason:
        return reason
    needed = needed_bytes(case, implementation, tuple(check.pass_ for check in checks))
    if needed > free:
        return f"needs {format_bytes(needed)}, {format_bytes(free)} free on {case.device}"
    return None


def _run_job(job: Job, available: Callable[[str], int]) -> Iterator[VerifyResult]:
    """Run the checks of one case; its inputs are made once and freed with it."""
    case, free = job.case, available(job.case.device)
    able = []
    for implementation, checks in job.trials:
        reason = obstacle(case, implementation, checks, free)
        if reason is None:
            able.append((implementation, checks))
            continue
        for check in checks:
            yield VerifyResult(case, implementation.name, check.name, SKIPPED, reason)
    if not able:
        return
    problem = Problem(case, *make_inputs(case), job.loosened)
    for implementation, checks in able:
        yield from _run_checks(problem, implementation, checks)


def _run_checks(
    problem: Problem, implementation: Implementation, checks: tuple[Check, ...]
) -> Iterator[VerifyResult]:
    """Put one implementation to a case; a check that it raises in is failed."""
    subject: Subject | None = None
    for check in checks:
        try:
            subject = subject or Subject.bind(implementation, problem.case)
            yield from check.run(problem, subject)
        except SubjectError as error:
            yield VerifyResult(problem.case, implementation.name, check.name, FAIL, str(error))
        except torch.OutOfMemoryError:
            reason = f"ran out of memory on {problem.case.device}"
            yield VerifyResult(problem.case, implementation.name, check.name, SKIPPED, reason)
