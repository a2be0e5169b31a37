"""Runs the jobs of a verification on a CPU in several processes.

Process k takes the jobs k, k + n, k + 2n and so on, and sends each result when it is ready; the
results are read in the order of the jobs. A kernel that ends its process fails its check, and the
jobs behind it go to a new process.

Each process has all threads, so that every kernel divides its work as it does for a user. Threads
that wait sleep, because `losscli verify` sets OMP_WAIT_POLICY, which these processes inherit.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import NamedTuple

from losscli.cases import Case
from losscli.implementations import find_implementation
from losscli.machine.devices import core_count
from losscli.runs.records import FAIL, VerifyResult
from losscli.truth.problem import Beside
from losscli.verify import runner
from losscli.verify.checks import find_check
from losscli.verify.runner import Job

CHECKS_A_PROCESS = 100
"""Fewer are done sooner than another process has imported torch."""
MOST_PROCESSES = 8
LARGEST = 2**20
"""Elements of the largest job that runs beside others: many such tensors fit any memory."""


class _Order(NamedTuple):
    """A job as it is sent: an implementation and a check go by their names."""

    case: Case
    trials: tuple[tuple[str, str], ...]
    loosened: float | None
    beside: Beside

    @classmethod
    def of(cls, job: Job) -> _Order:
        """Return what is sent for a job."""
        trials = tuple((implementation.name, check.name) for implementation, check in job.trials)
        return cls(job.case, trials, job.loosened, dict(job.beside))

    @property
    def job(self) -> Job:
        """The job."""
        trials = tuple((find_implementation(one), find_check(other)) for one, other in self.trials)
        return Job(self.case, trials, self.loosened, self.beside)


START_SECONDS = 5.0
"""To start the processes, which import torch."""
SECONDS_A_CHECK = 0.1
SECONDS_PER_ELEMENT = {"cpu": 100e-9, "cuda": 2e-9}
"""Of a check, for the elements of its case; measured on two cores. That of a GPU is a guess."""


def processes_for(jobs: Sequence[Job], device: str) -> int:
    """Return in how many processes jobs are to run; 0 is in none but this one."""
    if device != "cpu":
        return 0
    checks = sum(len(job) for job in jobs if _goes_out(job))
    wanted = min(core_count(), MOST_PROCESSES, checks // CHECKS_A_PROCESS)
    return wanted if wanted > 1 else 0


def seconds_of_checks(jobs: Sequence[Job], device: str) -> float:
    """Return how many seconds jobs may take: a check takes its time, and more for large cases."""
    kind = device.partition(":")[0]
    each = sum(
        len(job) * (SECONDS_A_CHECK + job.case.elements * SECONDS_PER_ELEMENT[kind]) for job in jobs
    )
    return START_SECONDS + each / (processes_for(jobs, device) or 1)


class Pool:
    """Runs jobs in other processes, and large ones and those of files in this one."""

    def __init__(self, jobs: Sequence[Job], count: int) -> None:
        """Start ``count`` processes, which begin at once; with none all jobs run in this one."""
        going = [job for job in jobs if _goes_out(job)] if count else []
        self._places = {id(job): number % count for number, job in enumerate(going)}
        self._processes = [_Process(going[number::count]) for number in range(count)]

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.end()

    def results_of(self, job: Job) -> Iterator[VerifyResult]:
        """Yield the results of the next job."""
        place = self._places.get(id(job))
        if place is None:
            yield from runner.run(job)
        else:
            yield from self._processes[place].results_of(job)


def _goes_out(job: Job) -> bool:
    """Tell whether a job may run beside others; a file has a process of its own already."""
    return job.case.elements <= LARGEST and not any(one.file for one, _ in job.trials)


class _Process:
    """A process, and the jobs that it has yet to finish."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = list(jobs)
        self._start()

    def results_of(self, job: Job) -> Iterator[VerifyResult]:
        """Yield the results of the first job that is left."""
        missing = list(job.trials)
        died = False
        while True:
            try:
                sent = self._connection.recv()
            except EOFError:
                self._process.join()
                yield self._death(job, missing)
                died = True
            if died or sent is None:
                break
            if isinstance(sent, BaseException):
                raise sent
            missing = [trial for trial in missing if not _is_of(sent, trial)]
            yield sent
        del self._jobs[0]
        # One that has ended without dying has sent the results of all its jobs.
        if died and self._jobs:
            self._start()

    def end(self) -> None:
        """End the process now."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _start(self) -> None:
        """Start a process that runs the jobs that are left."""
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe(duplex=False)
        orders = [_Order.of(job) for job in self._jobs]
        self._process: BaseProcess = context.Process(
            target=_serve, args=(other, orders), daemon=True
        )
        # What Ctrl-C means to all of them is for this process to say.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        other.close()

    def _death(self, job: Job, missing: Sequence[runner.Trial]) -> VerifyResult:
        """Return the failure of the check in which the process ended."""
        implementation, check = missing[0] if missing else job.trials[-1]
        code = self._process.exitcode or 0
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        text = f"ended its process with {how}"
        return VerifyResult(
            job.case, implementation.name, check.name, FAIL, text, code="process_died"
        )


def _is_of(result: VerifyResult, trial: runner.Trial) -> bool:
    implementation, check = trial
    names = check.results(result.case.spec) or (check.name,)
    return (result.implementation, result.check in names) == (implementation.name, True)


def _serve(connection: Connection, orders: Sequence[_Order]) -> None:
    """Run jobs, and send their results; None after those of each."""
    try:
        for order in orders:
            for result in runner.run(order.job):
                connection.send(result)
            connection.send(None)
    except BrokenPipeError:  # the process that asks has ended
        os._exit(0)
    except Exception as error:
        connection.send(error)
