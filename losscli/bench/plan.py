"""The tasks of a bench run: the cases of a config, and the time that each may take."""

import hashlib
import math
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

from losscli.bench.memory_plan import Fitting, those_that_fit
from losscli.build.targets import BENCH, Target, shared
from losscli.cases.axes import DEVICE, GRAPH, HOST, WARM, Cache, Mode, PassName
from losscli.cases.case import Case
from losscli.config.expansion import expand, those_asked_for
from losscli.config.schema import Config, Timing
from losscli.implementations import Implementation, find_implementation, libraries
from losscli.ranks.placements import WHOLE, Placement
from losscli.reasons import Code, Reason
from losscli.runs.columns import ENERGY
from losscli.runs.grouping import grouped
from losscli.runs.records import BenchResult, VerifyResult


@dataclass(frozen=True)
class Budget:
    """The seconds that a task, or a process that measures it, has when it begins."""

    total: float = math.inf
    left: float = math.inf
    """The time until the run has to end."""
    share: float = math.inf
    """The part of it after which sampling stops."""

    @property
    def used_up(self) -> Reason:
        return Reason(Code.BUDGET, f"the budget of {self.total:g} s is used up")

    def after(self, seconds: float, turns: int = 1) -> Self:
        """Return what is left after some time, with the share divided over ``turns``."""
        share = max(self.share - seconds, 0.0) / turns
        return replace(self, left=self.left - seconds, share=share)


class Turns:
    """Divides a task's time over the processes that measure it one after the other."""

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self.budget, self.clock, self.began = budget, clock, clock()
        self.limited = budget.total < math.inf
        self.last: float | None = None

    def has_time(self, start_seconds: float) -> bool:
        """Tell whether another process, once started, has 3/4 of the last one's time."""
        left = self.left()
        if self.last is None:
            return left.left > 0
        return left.share >= start_seconds + 0.75 * (self.clock() - self.last)

    def take(self, turns: int) -> Budget:
        self.last = self.clock()
        return self.left(turns)

    def left(self, turns: int = 1) -> Budget:
        return self.budget.after(self.clock() - self.began, turns)


class TimeIsUp(BaseException):
    """A block has no time left; not an Exception, which would be an implementation's failure."""


@contextmanager
def alarm(seconds: float, *, rings: bool = True) -> Iterator[None]:
    """Raise TimeIsUp when the time of a block is over; if not ``rings``, only at its start."""
    if seconds <= 0:
        raise TimeIsUp
    if not rings or seconds == math.inf:
        yield
        return

    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        try:
            # It repeats, since an exception in a finaliser is lost; a build ends in less time.
            signal.setitimer(signal.ITIMER_REAL, seconds, 15.0)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


Right = Mapping[tuple[object, ...], VerifyResult]
"""Verdicts of results that a gate found right, by their bits and what they were computed from."""


@dataclass(frozen=True)
class Task:
    """One case, and the implementations that are timed together in each pass."""

    case: Case
    passes: Mapping[PassName, tuple[str, ...]]
    timing: Timing
    mode: Mode = DEVICE
    loosened: float | None = None
    """ULP that the config allows this case."""
    table: str = ""
    limited: bool = field(default=True, repr=False)
    peaks: bool = field(default=True, repr=False)
    energy: bool = False
    right: Right = field(default_factory=dict, repr=False)
    files: Mapping[str, Implementation] = field(default_factory=dict, repr=False)
    """Implementations that were already read from files, by name."""
    reference: Implementation | None = field(default=None, repr=False)
    """A Model's reference."""
    budget: Budget = field(default=Budget(), repr=False)

    def find(self, name: str) -> Implementation:
        """Return an implementation by name; UsageError lists the names."""
        return self.files.get(name) or find_implementation(name)

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def cache(self) -> Cache:
        """The cache before each sample; a loop of calls evicts nothing."""
        loops = self.mode == HOST and self.case.device != "cpu"
        return WARM if loops else self.timing.cache

    def __len__(self) -> int:
        return sum(len(names) for names in self.passes.values())


def plan(
    config: Config, device: str, files: Mapping[str, Implementation] = MappingProxyType({})
) -> list[Task]:
    """Return a config's tasks on a device; ``files`` are implementations already read."""
    tasks = []
    for block in config.blocks:
        loosened = {tolerance.case: tolerance.ulp for tolerance in block.tolerances}
        energy = not ENERGY.isdisjoint(block.columns)
        timing = block.timing.on(device)
        for case in expand(block, device):
            passes = {p: names for p in block.passes if (names := those_asked_for(block, case, p))}
            for mode in timing.mode if passes else ():
                task = Task(case, passes, timing, mode, loosened.get(case.name), block.title)
                tasks.append(replace(task, energy=energy, files=dict(files)))
    return tasks


def libraries_of(tasks: Sequence[Task], device: str) -> list[Target]:
    """Return the libraries that tasks need: for their losses and the memory probe."""
    if not tasks:
        return []
    asked = ((t.case, name) for t in tasks for names in t.passes.values() for name in names)
    kind = device.partition(":")[0]
    return [*dict.fromkeys((*shared(kind), *libraries(asked, device), Target(BENCH, kind)))]


def lineup(task: Task, pass_: PassName, free: int) -> Fitting:
    """Return the implementations that can run a pass, and why others cannot; build nothing."""
    case = task.case
    if why := case.impossible or unavailable(task.mode, case.device, case.placement):
        return [], dict.fromkeys(task.passes[pass_], why)
    asked = [task.find(name) for name in task.passes[pass_]]
    reasons = {i.name: reason for i in asked if (reason := i.unavailable(case))}
    fitting = [i for i in asked if i.name not in reasons]
    able, misfits = those_that_fit(case, pass_, fitting, free, task.mode)
    return able, reasons | misfits


def able(tasks: Iterable[Task], free: int) -> list[Task]:
    """Return the parts of tasks that fit in memory, for which libraries are built."""
    found = []
    for task in tasks:
        lineups = {pass_: lineup(task, pass_, free)[0] for pass_ in task.passes}
        passes = {pass_: tuple(i.name for i in those) for pass_, those in lineups.items() if those}
        if passes:
            found.append(replace(task, passes=passes))
    return found


def unavailable(mode: Mode, device: str, placement: Placement = WHOLE) -> Reason | None:
    """Return why a mode is impossible on a device or over ranks, or None."""
    if mode != GRAPH:
        return None
    if placement:
        return Reason(Code.NOT_APPLICABLE, "graphs of collectives are not measured")
    return Reason(Code.NO_GPU, "a CUDA graph needs a GPU") if device == "cpu" else None


def plan_id(tasks: Sequence[Task]) -> str:
    """Return a digest of the tasks, which changes with any case, pass or timing."""
    return hashlib.sha256(repr(tasks).encode()).hexdigest()[:16]


def remaining(
    tasks: Iterable[Task], results: Iterable[BenchResult]
) -> tuple[list[Task], list[BenchResult]]:
    """Return the passes that lack results, as after a budget, and the others' results."""
    measured = (result for result in results if result.code != Code.BUDGET)
    found = grouped(measured, lambda r: (r.table, r.case, r.pass_, r.mode))
    left, kept = [], []
    for task in tasks:
        passes = {}
        for pass_, names in task.passes.items():
            there = found.get((task.table, task.case, pass_, task.mode), [])
            if {result.implementation for result in there} >= set(names):
                kept += there
            else:
                passes[pass_] = names
        if passes:
            left.append(replace(task, passes=passes))
    return left, kept


START_SECONDS = {"cpu": 2.0, "cuda": 4.0}
"""The time to start a process: it imports torch, and on a GPU makes a context."""
SECONDS_PER_ELEMENT = {"cpu": 80e-9, "cuda": 1e-9}
"""The time to make inputs, judge an implementation and warm up, for each process and pass; measured
on two cores. A GPU's is a guess."""
SAMPLED = 0.7
"""The fraction of the longest sampling time that cases use on average."""
BEFORE_REPORT = 0.97
"""The fraction of a budget after which nothing is measured."""


def seconds_of(task: Task) -> float:
    """Estimate the seconds of a task."""
    kind = task.case.device.partition(":")[0]
    processes = task.timing.processes or 1
    checked = len(task) * task.case.elements * SECONDS_PER_ELEMENT[kind] * processes
    return checked + len(task.passes) * SAMPLED * max(task.timing.max_time, task.timing.min_time)


def seconds_of_all(tasks: Sequence[Task]) -> float:
    """Estimate the seconds of tasks, with the start of their processes."""
    if not tasks:
        return 0.0
    kind = tasks[0].case.device.partition(":")[0]
    processes = max(task.timing.processes or 1 for task in tasks)
    return START_SECONDS[kind] * processes + sum(map(seconds_of, tasks))


@dataclass(frozen=True)
class Schedule:
    """The tasks of a run, each with its share of the time left when it begins."""

    tasks: Sequence[Task]
    budget: float
    elapsed: Callable[[], float]
    build: Callable[[Sequence[Task]], object] = lambda tasks: None
    """Builds what tasks need: first for one, so that its results come soon, then for all."""

    def __iter__(self) -> Iterator[Task]:
        weights = [*map(seconds_of, self.tasks)]
        for number, task in enumerate(self.tasks):
            if number < 2:
                with suppress(TimeIsUp), alarm(self.left()):
                    self.build(self.tasks[1:] if number else self.tasks[:1])
            left, part = self.left(), weights[number] / (sum(weights[number:]) or 1.0)
            budget = Budget(self.budget, left, max(left, 0.0) * part)
            yield replace(task, budget=budget) if left < math.inf else task

    def left(self) -> float:
        """Return the seconds until the report must be written."""
        return self.budget * BEFORE_REPORT - self.elapsed()
