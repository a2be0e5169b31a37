"""Puts implementations to every case of a config; a result at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache

from losscli import environment
from losscli.cases import Case, excluded, expand
from losscli.config.schema import Config
from losscli.environment import is_out_of_memory
from losscli.implementations import Implementation, find_implementation
from losscli.inputs import make_inputs
from losscli.results import FAIL, SKIPPED, VerifyResult
from losscli.verify.checks import CHECKS, Check
from losscli.verify.memory import fit
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject, SubjectError


@dataclass(frozen=True)
class Job:
    """One case, and the checks that implementations are put to on it."""

    case: Case
    trials: tuple[tuple[Implementation, Check], ...]
    loosened: float | None = None
    """ULP that the config grants this case by name."""

    def __len__(self) -> int:
        """Return the number of checks to run."""
        return len(self.trials)


def plan(config: Config, device: str) -> list[Job]:
    """Return the jobs of a config, without what its rules exclude."""
    return [job for block in config.blocks for job in _plan(block, device)]


def _plan(config: Config, device: str) -> list[Job]:
    """Return the jobs of one table."""
    loosened = {tolerance.case: tolerance.ulp for tolerance in config.tolerances}
    implementations = [find_implementation(name) for name in config.implementations]
    jobs = []
    for case in expand(config, device):
        trials = tuple(
            (implementation, check)
            for implementation in implementations
            for check in CHECKS.values()
            if check.pass_ in config.passes
            and not excluded(config.exclude, case, implementation.name, check.pass_)
        )
        if trials:
            jobs.append(Job(case, trials, loosened.get(case.name)))
    return jobs


def run(
    job: Job, free_bytes: Callable[[str], int] = environment.free_bytes
) -> Generator[VerifyResult, None, None]:
    """Yield each result of a job as it is there; nothing an implementation does wrong is raised.

    What cannot fit is skipped before anything of it is allocated.
    """
    case, free = job.case, free_bytes(job.case.device)
    problem = cache(lambda: Problem(case, *make_inputs(case), job.loosened))
    subject = cache(lambda implementation: Subject.bind(implementation, case))
    for implementation, check in job.trials:
        name = implementation.name
        reason = implementation.unavailable(case) or _shortage(case, implementation, check, free)
        if reason:
            yield VerifyResult(case, name, check.name, SKIPPED, reason)
            continue
        try:
            yield from check.run(problem(), subject(implementation))
        except SubjectError as error:
            yield VerifyResult(case, name, check.name, FAIL, str(error))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = f"{case.device} ran out of memory"
            yield VerifyResult(case, name, check.name, SKIPPED, reason)


def _shortage(case: Case, implementation: Implementation, check: Check, free: int) -> str:
    """Say by how much a check does not fit; empty if it does."""
    _, reasons = fit(case, check.pass_, [implementation], free)
    return reasons.get(implementation.name, "")
