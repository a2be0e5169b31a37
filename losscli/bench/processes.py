"""Measure each task in several fresh processes."""

import contextlib
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Self

from msgspec import structs

from losscli.bench.plan import START_SECONDS, Task, TimeIsUp, Turns, alarm, libraries_of
from losscli.bench.results import compared, merge, untimed
from losscli.bench.runner import Measured, Runner
from losscli.build.builder import kernels_of_wheel
from losscli.cases.axes import PassName
from losscli.config.schema import Timing
from losscli.machine import allocator
from losscli.machine.commits import commit_of_file
from losscli.processes import Process, how_ended
from losscli.reasons import Code, Reason
from losscli.runs.grouping import collected
from losscli.runs.records import FAILED, SKIPPED, BenchResult, BenchStatus

COMMAND: tuple[str, ...] = (sys.executable, "-m", "losscli.bench.worker")

GRACE_SECONDS = 0.2
"""The time after which a process that exceeds its budget is killed."""
_DEFAULT_ALLOCATOR = -1


class ProcessDiedError(Exception):
    """A process ended in the middle of a task, for this reason."""

    def __init__(self, code: int) -> None:
        killed = code == -signal.SIGKILL
        text = f"the process that measured the case ended {how_ended(code)}"
        text += ", as when the system runs out of memory" * killed
        self.status: BenchStatus = SKIPPED if killed else FAILED
        self.why = Reason(Code.OUT_OF_MEMORY if killed else Code.PROCESS_DIED, text)
        super().__init__(text)


class MeasuringProcess(Process):
    """A process whose first answer says that it has imported everything."""

    ready = False

    def answers(self, notify: Callable[[str], None]) -> Iterator[Measured]:
        """Yield what the process measures, pass on its notes; ProcessDiedError if it ends."""
        try:
            for answer in self.channel.each():
                if isinstance(answer, str):
                    notify(answer)
                else:
                    yield answer
        except EOFError:
            raise ProcessDiedError(self.end(5.0)) from None


class Processes:
    """The processes of a run; they live for all of it, since a start takes seconds."""

    def __init__(
        self,
        device: str,
        threads: int,
        *,
        notify: Callable[[str], None] = lambda note: None,
        show: Callable[[Sequence[BenchResult]], object] | None = None,
        start: Callable[[Sequence[str], Mapping[str, str]], MeasuringProcess] = MeasuringProcess,
        unsettable: Callable[[], str] = allocator.unsettable,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``notify`` gets notes; with ``show`` the first process measures before others start."""
        self.notify, self.show, self.clock = notify, show, clock
        self._start = start
        self._start_seconds = START_SECONDS[device.partition(":")[0]]
        self._command = (*COMMAND, device, str(threads))
        self._sets_allocator = device == "cpu" and not unsettable()
        self._workers: dict[int, MeasuringProcess] = {}
        self._runner = cache(partial(Runner, device, notify=notify, show=show))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()

    def run(self, task: Task) -> Generator[BenchResult, None, None]:
        """Yield a task's results; each process measures what its predecessors could."""
        if not task.timing.several_processes:
            yield from self._runner().run(task)
            return
        numbers = [*range(task.timing.processes or 1), *[_DEFAULT_ALLOCATOR] * self._sets_allocator]
        turns = Turns(task.budget, self.clock)
        left = replace(task, timing=share(task.timing))
        found: dict[tuple[PassName, str], list[BenchResult]] = defaultdict(list)
        default: dict[tuple[PassName, str], BenchResult] = {}
        for place, number in enumerate(numbers):
            start_seconds = 0.0 if number in self._workers else self._start_seconds
            if not (left.passes and turns.has_time(start_seconds)):
                break
            alone = turns.limited or (self.show and not place)
            self._prepare([number] if alone else numbers, turns.left().left)
            if number not in self._workers:
                break  # the budget ended before it had started
            left = replace(left, budget=turns.take(len(numbers) - place))
            if number == _DEFAULT_ALLOCATOR:  # only changes of more than a tenth are reported
                least, most = left.timing.min_time / 2, left.timing.max_time / 2
                half = replace(left.timing, min_time=least, max_time=most)
                left = replace(left, limited=False, timing=half)
            with contextlib.suppress(OSError):  # it has ended
                self._workers[number].channel.put(left)
            results, left = self._answers(number, left, first=place == 0)
            for each in results:
                key = each.pass_, each.implementation
                if number == _DEFAULT_ALLOCATOR:
                    default[key] = each
                elif not place or each.code != Code.BUDGET:  # else those before it have a time
                    found[key].append(each)
        for pass_, names in task.passes.items():
            merged = []
            for name in names:
                skipped = untimed(task, pass_, name, task.budget.used_up, status=SKIPPED)
                result = merge(found[pass_, name] or [skipped] * turns.limited)
                other = default.get((pass_, name))
                if result.seconds and other and other.seconds:
                    result = structs.replace(result, default_allocator_seconds=other.seconds.median)
                merged.append(result)
            yield from compared(merged)

    def _prepare(self, numbers: Sequence[int], seconds: float) -> None:
        """Start missing processes and wait for them: a start disturbs samples."""
        self.start(numbers)
        with contextlib.suppress(TimeIsUp), alarm(seconds):
            for worker in self._workers.values():
                if not worker.ready:
                    list(worker.answers(self.notify))  # yields nothing, but waits
                    worker.ready = True
        for number in [number for number, worker in self._workers.items() if not worker.ready]:
            self._workers.pop(number).close()

    def start(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number not in self._workers:
                environ: Mapping[str, str] = os.environ
                if self._sets_allocator:
                    environ = allocator.environment(keeps=number != _DEFAULT_ALLOCATOR)
                self._workers[number] = self._start(self._command, environ)

    def _answers(self, number: int, task: Task, *, first: bool) -> tuple[list[BenchResult], Task]:
        """Return a process's results, and the next one's task: what was measured here."""
        results: list[BenchResult] = []
        right = {**task.right}
        try:
            with alarm(task.budget.left + GRACE_SECONDS):
                for measured in self._workers[number].answers(self.notify):
                    results += measured.results
                    if first and self.show:
                        self.show(compared(measured.results))
                    right |= measured.right
        except TimeIsUp:
            self._workers.pop(number).close()
        except ProcessDiedError as error:
            self._workers.pop(number).close()
            told = {each.pass_ for each in results}
            results += [
                untimed(task, pass_, name, error.why, status=error.status)
                for pass_, names in task.passes.items()
                for name in names
                if pass_ not in told
            ]
        timed = collected((each.pass_, each.implementation) for each in results if each.seconds)
        passes = {pass_: tuple(names) for pass_, names in timed.items()}
        return results, replace(task, passes=passes, right=right, peaks=False, energy=False)


def share(timing: Timing) -> Timing:
    """Divide a case's time; n processes that know a median to sqrt(n) * x together know it to x."""
    count = timing.processes or 1
    return replace(
        timing,
        min_time=timing.min_time / count,
        max_time=timing.max_time / count,
        confidence=timing.confidence * count**0.5,
    )


def environment(device: str, tasks: Sequence[Task]) -> dict[str, object]:
    """Return facts of a run: a file's commit, kernels not built here, a CPU's allocator."""
    asked = (task.find(n) for task in tasks for names in task.passes.values() for n in names)
    facts: dict[str, object] = {}
    if kernels := kernels_of_wheel(libraries_of(tasks, device)):
        facts["kernels"] = kernels
    if file := next((each.file for each in asked if each.file), None):
        facts["file_commit"] = commit_of_file(file.path, file.revision)
    if device != "cpu":
        return facts
    several = any(task.timing.several_processes for task in tasks)
    if why := allocator.unsettable() if several else "measured in the process of the command":
        return facts | {"allocator": allocator.DEFAULT, "allocator_reason": why}
    return facts | {"allocator": allocator.KEEPS, "allocator_settings": dict(allocator.KEEPING)}
