"""Runs the jobs of a verification on a CPU in several processes.

Process k of n takes every n-th job; results are read in the order of the jobs. A kernel that ends
its process fails its check, and the jobs behind it go to a new process. Each process has all
threads, as for a user; threads that wait sleep, because `losscli verify` sets OMP_WAIT_POLICY.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterator, Sequence

from losscli.build.targets import Target
from losscli.machine.devices import core_count
from losscli.operators import loading
from losscli.processes import Process, how_ended, to_parent
from losscli.reasons import Code
from losscli.runs.records import FAIL, VerifyResult
from losscli.verify import runner
from losscli.verify.checks import Check, find_check
from losscli.verify.runner import Checks

CHECKS_A_PROCESS = 100
"""Fewer are done sooner than another process has imported torch."""
MOST_PROCESSES = 8
LARGEST = 2**20
"""Elements of the largest job that runs beside others: many such tensors fit any memory."""


# A check goes to a process by its name.
copyreg.pickle(Check, lambda one: (find_check, (one.name,)))

END_SECONDS = 5.0
"""The time in which a process has to end that sends no more."""
START_SECONDS = 5.0
"""The time in which processes start, which import torch."""
SECONDS_A_CHECK = 0.1
SECONDS_PER_ELEMENT = {"cpu": 100e-9, "cuda": 2e-9}
"""The time of a check for each element of its case; measured on two cores, for a GPU a guess."""


def processes_for(jobs: Sequence[Checks], device: str) -> int:
    """Return in how many processes jobs are to run; 0 is in none but this one."""
    checks = sum(len(job) for job in jobs if _runs_beside_others(job))
    wanted = min(core_count(), MOST_PROCESSES, checks // CHECKS_A_PROCESS)
    return wanted if device == "cpu" and wanted > 1 else 0


def seconds_of_checks(jobs: Sequence[Checks], device: str) -> float:
    """Return how many seconds jobs may take: a check takes its time, and more for large cases."""
    return START_SECONDS + sum(map(seconds_of, jobs)) / (processes_for(jobs, device) or 1)


def seconds_of(job: Checks) -> float:
    """Return how many seconds the checks of a job may take, one after the other."""
    kind = job.case.device.partition(":")[0]
    return len(job) * (SECONDS_A_CHECK + job.case.elements * SECONDS_PER_ELEMENT[kind])


class Pool:
    """Runs jobs in other processes, and large ones and those of files in this one."""

    def __init__(self, jobs: Sequence[Checks], count: int, targets: Sequence[Target] = ()) -> None:
        """Start ``count`` processes, or none for all jobs in this one; build ``targets``."""
        going = [job for job in jobs if _runs_beside_others(job)] if count else []
        self._process_of = {id(job): number % count for number, job in enumerate(going)}
        self._processes = [_Process(going[number::count]) for number in range(count)]
        loading.build_ahead(targets)
        # A process reads its jobs when it has imported torch, and what is longer than the socket's
        # buffer waits for that: by then all of them are importing.
        for process in self._processes:
            process.send_jobs()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.end()

    def results_of(self, job: Checks) -> Iterator[VerifyResult]:
        """Yield the results of the next job."""
        number = self._process_of.get(id(job))
        return runner.run(job) if number is None else self._processes[number].results_of(job)


def _runs_beside_others(job: Checks) -> bool:
    """Tell whether a job may run beside others; a file has a process of its own already."""
    return job.case.elements <= LARGEST and not any(one.file for one, _ in job.trials)


class _Process:
    def __init__(self, jobs: Sequence[Checks]) -> None:
        self._jobs = list(jobs)
        self._start()

    def results_of(self, job: Checks) -> Iterator[VerifyResult]:
        """Yield the results of the first job that is left."""
        missing = list(job.trials)
        del self._jobs[0]
        try:
            for result in self._process.channel.each():
                missing = [trial for trial in missing if not _is_of(result, trial)]
                yield result
        except EOFError:
            yield self._death(job, missing)
            self.end()
            if self._jobs:
                self._start()
                self.send_jobs()

    def send_jobs(self) -> None:
        self._process.channel.put(self._jobs)

    def end(self) -> None:
        self._process.close()

    def _start(self) -> None:
        self._process = Process((sys.executable, "-m", "losscli.verify.pool"))

    def _death(self, job: Checks, missing: Sequence[runner.Trial]) -> VerifyResult:
        implementation, check = missing[0] if missing else job.trials[-1]
        text = f"its process ended {how_ended(self._process.end(END_SECONDS))}"
        return VerifyResult(
            job.case, implementation.name, check.name, FAIL, text, code=Code.PROCESS_DIED
        )


def _is_of(result: VerifyResult, trial: runner.Trial) -> bool:
    implementation, check = trial
    names = check.results(result.case.spec) or (check.name,)
    return (result.implementation, result.check in names) == (implementation.name, True)


def main() -> None:
    """Run the jobs that the parent sends, and send the results of each."""
    with to_parent() as channel:
        for job in next(iter(channel), []):
            with channel.answer():
                for result in runner.run(job):
                    channel.put(result)


if __name__ == "__main__":
    main()
