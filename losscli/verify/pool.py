"""Runs the jobs of a verification on a CPU in several processes.

Each uses all threads, as for a user; waiting ones sleep, as `losscli verify` sets OMP_WAIT_POLICY.
A kernel that ends its process fails its check, and a new process takes the remaining jobs.
"""

import copyreg
import sys
from collections.abc import Iterator, Sequence
from typing import Self

from losscli.build.targets import Target
from losscli.machine.devices import core_count
from losscli.operators import loading
from losscli.processes import Process, how_ended, to_parent
from losscli.reasons import Code
from losscli.runs.records import FAIL, VerifyResult
from losscli.verify import runner
from losscli.verify.checks import Check, find_check
from losscli.verify.runner import Checks

MOST_PROCESSES = 8
LARGEST = 2**20
"""Elements of the largest job that runs beside others: many such tensors fit any memory."""
END_SECONDS = 5.0
START_SECONDS = 5.0
SECONDS_A_CHECK = 0.1
SECONDS_PER_ELEMENT = {"cpu": 100e-9, "cuda": 2e-9}
"""Of one check; measured on two cores, for a GPU a guess."""

# A check goes to a process by its name.
copyreg.pickle(Check, lambda one: (find_check, (one.name,)))


def processes_for(jobs: Sequence[Checks], device: str) -> int:
    """Return how many other processes run the jobs; 0 means only this one."""
    checks = sum(len(job) for job in jobs if _runs_beside_others(job))
    # Fewer than 100 are done sooner than another process has imported torch.
    wanted = min(core_count(), MOST_PROCESSES, checks // 100)
    return wanted if device == "cpu" and wanted > 1 else 0


def seconds_of_checks(jobs: Sequence[Checks], device: str) -> float:
    """Estimate how long jobs take."""
    return START_SECONDS + sum(map(seconds_of, jobs)) / (processes_for(jobs, device) or 1)


def seconds_of(job: Checks) -> float:
    """Estimate how long one job takes."""
    kind = job.case.device.partition(":")[0]
    return len(job) * (SECONDS_A_CHECK + job.case.elements * SECONDS_PER_ELEMENT[kind])


class Pool:
    """Runs jobs in ``count`` other processes; large jobs and those of files run in this one."""

    def __init__(self, jobs: Sequence[Checks], count: int, targets: Sequence[Target] = ()) -> None:
        going = [job for job in jobs if _runs_beside_others(job)] if count else []
        self._process_of = {id(job): number % count for number, job in enumerate(going)}
        self._processes = [_Process(going[number::count]) for number in range(count)]
        loading.build_ahead(targets)
        # A process reads its jobs when it has imported torch, and what is longer than the socket's
        # buffer waits for that: by then all of them are importing.
        for process in self._processes:
            process.send_jobs()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.end()

    def results_of(self, job: Checks) -> Iterator[VerifyResult]:
        """Yield the results of the next job."""
        number = self._process_of.get(id(job))
        return runner.run(job) if number is None else self._processes[number].results_of(job)


def _runs_beside_others(job: Checks) -> bool:
    # A file has its own process already.
    return job.case.elements <= LARGEST and not any(one.file for one, _ in job.trials)


class _Process:
    def __init__(self, jobs: Sequence[Checks]) -> None:
        self._jobs = list(jobs)
        self._start()

    def results_of(self, job: Checks) -> Iterator[VerifyResult]:
        missing = list(job.trials)
        del self._jobs[0]
        try:
            for result in self._process.channel.each():
                missing = [trial for trial in missing if not _is_of(result, trial)]
                yield result
        except EOFError:
            one, check = missing[0] if missing else job.trials[-1]
            text = f"its process ended {how_ended(self._process.end(END_SECONDS))}"
            yield VerifyResult(job.case, one.name, check.name, FAIL, text, code=Code.PROCESS_DIED)
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
