"""Puts implementations to every case of a config; a result at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from losscli import environment
from losscli.cases import Case, asked_for, expand
from losscli.config.schema import Config
from losscli.environment import is_out_of_memory
from losscli.errors import UsageError, unknown
from losscli.implementations import Implementation, find_implementation
from losscli.results import FAIL, SKIPPED, VerifyResult
from losscli.verify.checks import CHECKS, Check
from losscli.verify.memory import fit
from losscli.verify.problem import Problem
from losscli.verify.subject import Subject, SubjectError

Trial = tuple[Implementation, Check]


@dataclass(frozen=True)
class Job:
    """One case, and the checks that implementations are put to on it."""

    case: Case
    trials: tuple[Trial, ...]
    loosened: float | None = None
    """ULP that the config grants this case by name."""

    def __len__(self) -> int:
        """Return the number of checks to run."""
        return len(self.trials)


def plan(
    config: Config,
    device: str,
    free_bytes: Callable[[str], int] = environment.free_bytes,
    checks: Collection[str] = (),
) -> list[Job]:
    """Return the jobs of a config, without what its rules exclude.

    Args:
        config: what is verified.
        device: where.
        free_bytes: the machine's, or a test's.
        checks: names of those that are run; all where none is given. UsageError for another name.
    """
    for name in checks:
        if name not in CHECKS:
            raise UsageError(unknown("check", name, CHECKS))
    free = free_bytes(device)
    chosen = [check for check in CHECKS.values() if not checks or check.name in checks]
    return [job for block in config.blocks for job in _plan(block, device, free, chosen)]


def _plan(config: Config, device: str, free: int, checks: Sequence[Check]) -> list[Job]:
    """Return the jobs of one table."""
    loosened = {tolerance.case: tolerance.ulp for tolerance in config.tolerances}
    asked = [
        (case, trial) for case in expand(config, device) for trial in _trials(config, case, checks)
    ]
    # Of cases that a check need not tell apart, the largest that fits; of these, the first.
    chosen: dict[tuple[object, ...], tuple[int, Case]] = {}
    for case, trial in asked:
        adapted = trial[1].adapt(case)
        rank = 0 if _shortage(adapted, *trial, free) else 1 + case.elements
        if rank > chosen.get(_key(case, trial), (-1, case))[0]:
            chosen[_key(case, trial)] = rank, case
    jobs: list[Job] = []
    for case, group in groupby(asked, key=lambda pair: pair[0]):
        trials = [trial for _, trial in group if chosen[_key(case, trial)][1] == case]
        jobs += split(case, trials, loosened.get(case.name))
    return jobs


def _key(case: Case, trial: Trial) -> tuple[object, ...]:
    """Return what cases have in common of which an implementation needs one for a check."""
    implementation, check = trial
    return (implementation.name, check.name, *check.key(case))


def split(case: Case, trials: Iterable[Trial], loosened: float | None = None) -> list[Job]:
    """Return a job for the case and for each other that a check makes of it."""
    by_case: list[tuple[Case, list[Trial]]] = []
    for implementation, check in trials:
        adapted = check.adapt(case)
        own = next((own for known, own in by_case if known == adapted), None)
        if own is None:
            by_case.append((adapted, own := []))
        own.append((implementation, check))
    return [Job(adapted, tuple(own), loosened) for adapted, own in by_case]


def _trials(config: Config, case: Case, checks: Sequence[Check]) -> Iterator[Trial]:
    """Yield what the config asks of a case."""
    for name in config.implementations:
        for check in checks:
            if check.pass_ in config.passes and asked_for(config, case, name, check.pass_):
                yield find_implementation(name), check


def run(
    job: Job, free_bytes: Callable[[str], int] = environment.free_bytes
) -> Generator[VerifyResult, None, None]:
    """Yield each result of a job as it is there; nothing an implementation does wrong is raised.

    What cannot fit is skipped before anything of it is allocated.
    """
    case, free = job.case, free_bytes(job.case.device)
    problem = cache(lambda: Problem.of(case, job.loosened))
    subject = cache(lambda implementation: Subject.bind(implementation, case))
    for implementation, check in job.trials:
        name = implementation.name
        reason = (
            implementation.unavailable(case)
            or check.missing(case)
            or _shortage(case, implementation, check, free)
        )
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
    _, reasons = fit(case, check.pass_, [implementation], free, check.held(case))
    return reasons.get(implementation.name, "")
