"""Measures each task in several fresh processes: starts them, sends tasks in turn, ends them.

Where memory lies, what the allocator has learnt and which pages are huge differ between processes
and not within one. So a case is sampled by each of several processes, one after the other, and the
spread between them is part of what is known of it. The processes stay for the whole run, because
to start one takes seconds; each is fresh when the run begins, and gives back its memory after each
case. One that dies is replaced for the next case.

On a CPU their allocator keeps what it frees, and one more process, whose allocator was not set,
tells what difference that makes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from losscli.axes import PassName
from losscli.bench.merging import merge, with_default_allocator
from losscli.bench.outcome import Found, Surroundings, Untimed, results
from losscli.bench.plan import Task
from losscli.bench.runner import Runner
from losscli.config.schema import Timing
from losscli.errors import LosscliError
from losscli.machine import allocator
from losscli.reasons import Reason
from losscli.runs.records import FAILED, SKIPPED, BenchResult

if TYPE_CHECKING:
    from losscli.bench.protocol import Broken

COMMAND = (sys.executable, "-m", "losscli", "worker")
"""Starts a process; its device and number of threads follow."""

_DEFAULT_ALLOCATOR = -1
"""The number of the process whose allocator is not set where the others' is."""


class ProcessDiedError(Exception):
    """A process ended in the middle of a task."""

    def __init__(self, code: int) -> None:
        """``code`` is its exit code, or the number of the signal that ended it, negative."""
        self.code = code
        how = f"with exit code {code}"
        if code < 0:
            how = f"by {signal.Signals(-code).name}"
        super().__init__(f"the process that measured the case ended {how}")

    @property
    def outcome(self) -> Untimed:
        """What becomes of the implementations that it ran."""
        if self.code == -signal.SIGKILL:
            text = f"{self}, as when the system runs out of memory"
            return Untimed(SKIPPED, Reason("out_of_memory", text))
        return Untimed(FAILED, Reason("process_died", str(self)))


class Worker:
    """One process.

    The protocol is imported where it is spoken: a run in one process needs no msgspec.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start it, in a session of its own: Ctrl-C is for the command, which ends it."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environ},
            start_new_session=True,
        )
        self._ready = False

    def wait_until_ready(self, notify: Callable[[str], None]) -> None:
        """Wait until it has imported all that it needs."""
        if not self._ready:
            for _ in self._answers(notify):
                pass
            self._ready = True

    def measure(self, task: Task, notify: Callable[[str], None]) -> Iterator[Found]:
        """Yield what becomes of each pass of a task.

        Raises:
            ProcessDiedError: it ended before the task was finished.
            LosscliError: an error that ends the run.
        """
        from losscli.bench.protocol import write_line

        self.wait_until_ready(notify)
        assert self._process.stdin
        try:
            self._process.stdin.write(write_line(task))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        yield from self._answers(notify)

    def end(self) -> None:
        """Kill it: it has nothing to save."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def _answers(self, notify: Callable[[str], None]) -> Iterator[Found]:
        """Yield what it reports until it says that it is done."""
        from losscli.bench.protocol import Broken, Done, Note, Report, read_message

        assert self._process.stdout
        for line in self._process.stdout:
            message = read_message(line) if line.endswith(b"\n") else None
            if isinstance(message, Done):
                return
            if isinstance(message, Note):
                notify(message.text)
            if isinstance(message, Report):
                yield message.found
            if isinstance(message, Broken):
                raise _error(message)
        raise self._died()

    def _died(self) -> ProcessDiedError:
        return ProcessDiedError(self._process.wait())


class Processes:
    """The processes of a run; ends them as a context."""

    def __init__(
        self,
        device: str,
        threads: int,
        *,
        notify: Callable[[str], None] = lambda note: None,
        start: Callable[[Sequence[str], Mapping[str, str]], Worker] = Worker,
        unsettable: Callable[[], str] = allocator.unsettable,
        runner: Callable[[], Runner] | None = None,
    ) -> None:
        """``notify`` takes notes for the user; the rest is the machine's, or a test's."""
        self.notify = notify
        self._start = start
        self._command = (*COMMAND, "--device", device, "--threads", str(threads))
        self._sets_allocator = device == "cpu" and not unsettable()
        self._workers: dict[int, Worker] = {}
        self._new_runner = runner or (lambda: Runner(device, notify=notify))
        self._runner: Runner | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    def run(self, task: Task) -> Generator[BenchResult, None, None]:
        """Yield the results of a task, of all its passes when all processes are done."""
        if not task.timing.several_processes:
            self._runner = self._runner or self._new_runner()
            yield from self._runner.run(task)
            return
        for found in self._measure(task):
            yield from results(task, found.pass_, found.outcomes, found.around)

    def _measure(self, task: Task) -> list[Found]:
        """Ask one process after the other, each for what had a time in all before it."""
        count = task.timing.processes or 1
        left = replace(task, timing=share(task.timing))
        found: dict[PassName, list[Found]] = {pass_: [] for pass_ in task.passes}
        self._prepare(count)
        for number in range(count):
            asked = left
            for each in self._ask(number, asked):
                found[each.pass_].append(each)
            left = _surviving(asked, found)
            if not left.passes:
                break
        merged = [merge(each) for each in found.values()]
        if self._sets_allocator and left.passes:
            beside = {each.pass_: each for each in self._ask(_DEFAULT_ALLOCATOR, left)}
            merged = [
                with_default_allocator(each, beside[each.pass_]) if each.pass_ in beside else each
                for each in merged
            ]
        return merged

    def _prepare(self, count: int) -> None:
        """Start what is missing, all at once, and wait: a start would disturb what is sampled."""
        numbers = [*range(count), *([_DEFAULT_ALLOCATOR] if self._sets_allocator else [])]
        for number in numbers:
            if number not in self._workers:
                keeps = self._sets_allocator and number != _DEFAULT_ALLOCATOR
                environ = allocator.KEEPING if keeps else {}
                self._workers[number] = self._start(self._command, environ)
        for worker in self._workers.values():
            worker.wait_until_ready(self.notify)

    def _ask(self, number: int, task: Task) -> list[Found]:
        """Return what a process finds in each pass; of one that dies, that it died."""
        found: list[Found] = []
        try:
            found += self._workers[number].measure(task, self.notify)
        except ProcessDiedError as error:
            self._workers.pop(number).end()
            reported = {each.pass_ for each in found}
            found += [
                Found(pass_, dict.fromkeys(names, error.outcome), Surroundings())
                for pass_, names in task.passes.items()
                if pass_ not in reported
            ]
        return found


def share(timing: Timing) -> Timing:
    """Return what each process does of a case: an equal part of its time.

    A median that each process knows to the root of their number times less is known to what was
    asked for by all together.
    """
    count = timing.processes or 1
    return replace(
        timing,
        min_time=timing.min_time / count,
        max_time=timing.max_time / count,
        confidence=timing.confidence * count**0.5,
    )


def environment(device: str, tasks: Sequence[Task]) -> dict[str, object]:
    """Return what a record says of the processes: the allocator of those that measure on a CPU."""
    if device != "cpu":
        return {}
    several = any(task.timing.several_processes for task in tasks)
    why = allocator.unsettable() if several else "measured in the process of the command"
    if why:
        return {"allocator": allocator.DEFAULT, "allocator_reason": why}
    return {"allocator": allocator.KEEPS, "allocator_settings": dict(allocator.KEEPING)}


def _surviving(task: Task, found: Mapping[PassName, Sequence[Found]]) -> Task:
    """Return the task without what has no time in the last process."""
    passes = {
        pass_: tuple(name for name in names if name in found[pass_][-1].timed)
        for pass_, names in task.passes.items()
    }
    return replace(task, passes={pass_: names for pass_, names in passes.items() if names})


def _error(message: Broken) -> Exception:
    """Return the error that a process tells of."""
    if message.exit_code is None:
        return RuntimeError(message.text)
    error = LosscliError(message.text)
    error.exit_code = message.exit_code
    return error
