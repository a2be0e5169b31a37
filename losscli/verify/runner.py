"""Runs the checks of every case of a config, and yields their results."""

import hashlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, product
from types import MappingProxyType

from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.config.expansion import asked_for, expand
from losscli.config.schema import Config
from losscli.errors import UsageError
from losscli.implementations import CUSTOM, Implementation, find_implementation
from losscli.implementations.errors import SubjectError
from losscli.implementations.process_state import ProcessState, StateChange, reason_of
from losscli.implementations.subject import bind, changes_of
from losscli.machine import devices, memory
from losscli.machine.memory import is_out_of_memory
from losscli.reasons import Code, Reason
from losscli.runs.records import FAIL, SKIPPED, WARN, VerifyResult, VerifyStatus
from losscli.truth.problem import Problem
from losscli.truth.setup import Beside, ThirdParty
from losscli.verify.checks import CHECKS, Check, find_check
from losscli.verify.needed_memory import choose_fitting

Trial = tuple[Implementation, Check]
Key = tuple[object, ...]
RunJob = Callable[["Checks"], Iterable[VerifyResult]]

broken: dict[str, Reason] = {}
"""Why this process can no longer use a GPU: an implementation broke it."""


@dataclass(frozen=True)
class Checks:
    """One case and what runs on it; see :class:`losscli.truth.setup.Setup` for the fields."""

    case: Case
    trials: tuple[Trial, ...]
    loosened: float | None = None
    beside: Beside = field(default_factory=dict)
    reference: Implementation | None = None
    """What computes the truth of a Model."""

    @property
    def name(self) -> str:
        """The case's name."""
        return self.case.name

    @property
    def third_party(self) -> ThirdParty | None:
        """Facts about the files among the implementations, if any."""
        files = [each for each, _ in self.trials if each.file]
        lacking = {name: None for each in files for name in each.setting.lacking}
        labels = any(each.setting.labels for each in files)
        return ThirdParty(tuple(lacking), self.reference, labels) if files else None

    def __len__(self) -> int:
        return len(self.trials)


def plan(
    config: Config,
    device: str,
    free_bytes: Callable[[str], int] = memory.free_bytes,
    checks: Collection[str] = (),
    files: Mapping[str, Implementation] = MappingProxyType({}),
) -> list[Checks]:
    """Return the jobs of a config, without what its rules exclude.

    ``checks`` selects checks by name, of which one has to apply, or UsageError; ``files`` are the
    implementations of files read already.
    """
    wanted = {find_check(name).name for name in checks}
    picked = [check for check in CHECKS.values() if not checks or check.name in wanted]
    asked = [
        (number, case, (files.get(name) or find_implementation(name), check))
        for number, block in enumerate(config.blocks)
        for case in expand(block, device)
        for name, check in product(block.implementations, picked)
        if check.pass_ in block.passes and asked_for(block, case, name, check.pass_)
        if not block.checks or check.name in block.checks
    ]
    chosen = _choose(asked, free_bytes(device))
    losses: dict[str, dict[str, None]] = {}
    for _, case, (implementation, _) in asked:
        losses.setdefault(implementation.name, {})[case.loss] = None
    beside = {name: tuple(own) for name, own in losses.items()}
    jobs: list[Checks] = []
    for (number, case), group in groupby(asked, key=lambda one: one[:2]):
        trials = [trial for *_, trial in group if chosen[_key(case, trial)] == (number, case)]
        loosened = {tolerance.case: tolerance.ulp for tolerance in config.blocks[number].tolerances}
        jobs += split(case, trials, loosened.get(case.name), beside)
    if checks and not jobs:
        _refuse(config, picked, dict.fromkeys(trial[1] for *_, trial in asked))
    return jobs


def plan_id(jobs: Iterable[Checks]) -> str:
    """Return a digest of jobs, which differs with any case, implementation and check."""
    asked = [(job.case, [(one.name, check.name) for one, check in job.trials]) for job in jobs]
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


def _refuse(config: Config, checks: Iterable[Check], asked: Iterable[Check]) -> None:
    """Raise UsageError that says why none of the ``checks`` runs; ``asked`` do not apply."""
    passes = {pass_ for block in config.blocks for pass_ in block.passes}
    listed = {name for block in config.blocks for name in block.checks or CHECKS}
    reasons = [f"{check.name} applies only to {check.needs or check.losses}" for check in asked]
    unlisted = (check for check in checks if check.name not in listed)
    reasons += [f"{check.name} is among the checks of no table" for check in unlisted]
    others = (check for check in checks if check.pass_ not in passes)
    reasons += [f"{check.name} needs --pass {check.pass_}" for check in others]
    if reasons:
        raise UsageError(f"no check applies to these cases: {'; '.join(reasons)}.")


def _choose(asked: Iterable[tuple[int, Case, Trial]], free: int) -> dict[Key, tuple[int, Case]]:
    """Return the largest case that fits, or else the first, of those that are one to a check."""
    best: dict[Key, tuple[int, tuple[int, Case]]] = {}
    for number, case, trial in asked:
        implementation, check = trial
        applies = not check.why_not(case, implementation)
        fits = applies and not _shortage(check.adapt(case), *trial, free)
        rank = 1 + case.elements if fits else 0
        if rank > best.get(_key(case, trial), (-1,))[0]:
            best[_key(case, trial)] = rank, (number, case)
    return {key: place for key, (_, place) in best.items()}


def _key(case: Case, trial: Trial) -> Key:
    name, check = trial[0].name, trial[1]
    return (name, check.name, *check.key(case, own=name == CUSTOM))


def split(
    case: Case,
    trials: Iterable[Trial],
    loosened: float | None = None,
    beside: Beside = MappingProxyType({}),
) -> list[Checks]:
    """Return a job for each case that applicable checks make of this one."""
    by_case: dict[Case, list[Trial]] = {}
    for implementation, check in trials:
        if not check.why_not(case, implementation):
            by_case.setdefault(check.adapt(case), []).append((implementation, check))
    return [Checks(adapted, tuple(own), loosened, beside) for adapted, own in by_case.items()]


def why_not(case: Case, implementation: Implementation, check: Check, free: int) -> Reason | None:
    """Return why a check cannot run in ``free`` bytes, as far as is known beforehand."""
    return (
        case.impossible
        or implementation.unavailable(case)
        or check.missing(case)
        or _shortage(case, implementation, check, free)
    )


def possible(jobs: Iterable[Checks], free: int) -> Iterator[tuple[Case, str]]:
    """Yield case and implementation of each check that can run in ``free`` bytes."""
    for job in jobs:
        for implementation, check in job.trials:
            if not why_not(job.case, implementation, check, free):
                yield job.case, implementation.name


def run(
    job: Checks, free_bytes: Callable[[str], int] = memory.free_bytes
) -> Generator[VerifyResult, None, None]:
    """Yield each result of a job when it is ready; errors of an implementation are results."""
    case = job.case
    free = 0 if case.device in broken else free_bytes(case.device)
    problem: Problem | None = None
    subject = cache(lambda implementation: bind(implementation, case))
    for number, (implementation, check) in enumerate(job.trials, 1):
        name = implementation.name
        reason = broken.get(case.device) or why_not(case, implementation, check, free)
        if reason:
            yield VerifyResult(case, name, check.name, SKIPPED, reason.text, code=reason.code)
            continue
        # A file's process watches its own state.
        file = implementation.file
        before = None if file else ProcessState.read()
        results: list[VerifyResult] = []
        spoiled = ""
        try:
            if problem is None:
                problem = Problem.of(case, job.loosened, job.beside, third_party=job.third_party)
                problem.mark()
            found = check.run(problem, subject(implementation))
            results = [_held(result, implementation) for result in found]
            # The last check looks also at what earlier ones have used.
            spoiled = problem.spoiled(used=number < len(job.trials))
        except Exception as error:
            if failure := _failure(error, case.device, name):
                results = [VerifyResult(case, name, check.name, *failure)]
            else:  # PyTorch's own formula refuses operands that are outside the loss's domain
                spoiled = problem.spoiled() if problem else ""
                if not spoiled:
                    raise
            # Whatever is left of the operands, the next shall have its own.
            problem = None
        if spoiled:
            text = f"modified its {spoiled} in place, so its result cannot be judged"
            results = [
                VerifyResult(case, name, each, FAIL, text, code=Code.MODIFIED_INPUT)
                for each in check.results(case.spec) or (check.name,)
            ]
            problem = None
        changed = before.restore() if before else changes_of(file)
        yield from (_blamed(result, changed) for result in results)


def _blamed(result: VerifyResult, changed: Sequence[StateChange]) -> VerifyResult:
    if not changed:
        return result
    reason = reason_of(changed)
    if result.status == FAIL:
        code = reason.code if reason.code == Code.MONKEY_PATCHED else result.code
        return replace(result, reason=f"{result.reason}; {reason}", code=code)
    return replace(result, status=FAIL, reason=reason.text, code=reason.code)


def _held(result: VerifyResult, implementation: Implementation) -> VerifyResult:
    """Fail excused results of what is held to the oracle; excuse failures of PyTorch's own."""
    if implementation.torchs_own and result.code in (Code.WRONG, Code.KNOWN_LIMITATION):
        return replace(result, status=WARN, code=Code.SAME_ERROR_AS_PYTORCH)
    lenient = result.code in (Code.SAME_ERROR_AS_PYTORCH, Code.LESS_ACCURATE)
    if lenient and implementation.held_to_oracle:
        return replace(result, status=FAIL, code=Code.WRONG)
    return result


def _failure(error: Exception, device: str, name: str) -> tuple[VerifyStatus, str, Code] | None:
    """Return what an error says about the implementation, or None; note a GPU that it broke."""
    # PyTorch's error after a kernel crashed, and of every later call. That of a capture has it too,
    # and leaves the GPU usable.
    is_of_cuda = "CUDA error" in str(error)
    is_dead = is_of_cuda and devices.is_broken(device)
    if is_dead:
        earlier = Reason(Code.DEVICE_UNUSABLE, f"{device} was made unusable earlier by {name}")
        broken.setdefault(device, earlier)
    if isinstance(error, SubjectError):
        # Of a file it says itself whether it broke the GPU of its process.
        code = Code.DEVICE_ERROR if is_dead and error.code == Code.RAISED else error.code
        return FAIL, str(error), code
    if is_of_cuda:
        reason = f"made {device} unusable: {str(error).partition(chr(10))[0]}"
        return FAIL, reason, Code.DEVICE_ERROR
    if is_out_of_memory(error):
        return SKIPPED, f"{device} ran out of memory", Code.OUT_OF_MEMORY
    return None


def _shortage(case: Case, implementation: Implementation, check: Check, free: int) -> Reason | None:
    _, reasons = choose_fitting(case, check.pass_, [implementation], free, check.held(case))
    return reasons.get(implementation.name)
