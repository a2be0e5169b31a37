"""Judge many jobs at once, in processes of this machine that run ``losscli judge-job``."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from losscli.console.streams import tell
from losscli.errors import LosscliError, NoGPUError, UnfitError, UsageError, printable
from losscli.judge.job import Job
from losscli.judge.verdict import Verdict, not_judged
from losscli.machine import allocator
from losscli.machine.devices import core_count, find_gpus, let_threads_sleep, torch_without_cuda
from losscli.machine.memory import free_bytes
from losscli.processes import Process, how_ended, to_parent
from losscli.reasons import Code

COMMAND = (sys.executable, "-m", "losscli", "judge-job")
GRACE = 10.0
"""Seconds that a process has to clean up after Ctrl-C, or after its parent's end."""
WORKER_BYTES = 2 * 2**30
"""Memory of a judge with its candidate: torch twice (0.3 GiB each), operands, a compiler."""
JUDGES_OF_A_GPU = 4
"""Each judge and candidate has a context of half a GiB, and only one times at a time."""
Item = Job | Verdict


class JudgePool(Protocol):
    """Judges many jobs, on this machine or a cluster."""

    def run(self, jobs: Iterable[Item]) -> Generator[Verdict, None, None]:
        """Yield each verdict when it is ready; take jobs as needed, and pass verdicts on."""


def usable_gpus() -> list[str]:
    """Return the GPUs that torch can use, as ``cuda:N``; needs no torch."""
    return [] if torch_without_cuda() else [gpu.name for gpu in find_gpus()]


class LocalPool:
    """A pool of processes of this machine; a GPU that did not recover gets no more jobs."""

    def __init__(
        self,
        workers: int | None = None,
        *,
        gpus: Sequence[str] = (),
        notify: Callable[[str], None] = lambda note: None,
        command: Sequence[str] = COMMAND,
        grace: float = GRACE,
    ) -> None:
        """``workers``: most judges at once. ``notify`` gets what concerns no single job."""
        most = min(core_count(), len(gpus) * JUDGES_OF_A_GPU) if gpus else core_count()
        self.workers = workers or max(1, min(most, free_bytes("cpu") // WORKER_BYTES))
        self._command, self._grace = command, grace
        self._gpus, self._notify = list(gpus), notify
        self._broken: set[str] = set()
        self._next, self._lock = 0, threading.Lock()

    def run(self, jobs: Iterable[Item]) -> Generator[Verdict, None, None]:
        """See :meth:`JudgePool.run`."""
        verdicts: queue.SimpleQueue[Verdict | BaseException | None] = queue.SimpleQueue()
        judges = [JudgeProcess() for _ in range(self.workers)]
        items, taking = iter(jobs), threading.Lock()

        def take() -> Item | None:
            with taking:
                return next(items, None)

        def work(judge: JudgeProcess) -> None:
            try:
                while item := take():
                    found = item if isinstance(item, Verdict) else self._judge(item, judge)
                    if found is None:
                        break
                    verdicts.put(found)
            except BaseException as error:
                verdicts.put(error)
            finally:
                judge.retire()
                verdicts.put(None)

        for judge in judges:  # daemons: one may wait for ever for the next job
            threading.Thread(target=work, args=(judge,), daemon=True).start()
        try:
            working = self.workers
            while working:
                found = verdicts.get()
                if isinstance(found, BaseException):
                    raise found
                if found is None:
                    working -= 1
                else:
                    yield found
        finally:
            self._stop(judges)

    def _assigned(self, job: Job) -> Job | Verdict:
        """Give a job the next GPU that works."""
        with self._lock:
            if job.device in self._broken:
                text = f"{job.device} did not recover from a kernel"
                return not_judged(job, Code.DEVICE_UNHEALTHY, text)
            if job.device not in ("auto", "cuda") or not self._gpus:
                return job
            if not (left := [name for name in self._gpus if name not in self._broken]):
                text = "no GPU recovered from the kernels before"
                return not_judged(job, Code.DEVICE_UNHEALTHY, text)
            self._next += 1
            return replace(job, device=left[(self._next - 1) % len(left)])

    def _judge(self, job: Job, judge: JudgeProcess) -> Verdict | None:
        assigned = self._assigned(job)
        if isinstance(assigned, Verdict):
            return assigned
        environ = environment(yields=self.workers > 1 and not job.timed)
        verdict = judge.ask(assigned, self._command, environ)
        if verdict and Code.DEVICE_UNHEALTHY in verdict.codes:
            device = verdict.device
            with self._lock:
                new = device not in self._broken
                self._broken.add(device)
            if new:
                text = f"{device} did not recover from {verdict.file} and is judged on no more"
                self._notify(text)
        return verdict

    def _stop(self, judges: Sequence[JudgeProcess]) -> None:
        processes = [process for judge in judges if (process := judge.close())]
        try:
            for process in processes:
                process.interrupt()
            for process in processes:
                process.end(self._grace)
        finally:
            for process in processes:
                process.end()


class JudgeProcess:
    """A process that judges one job after another, replaced when it cannot be trusted."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._made: tuple[object, ...] = ()
        self._lock, self._closed = threading.Lock(), False

    def ask(self, job: Job, command: Sequence[str], environ: Mapping[str, str]) -> Verdict | None:
        """Return a job's verdict from a process with this command and environment.

        NOT JUDGED where the process ends; None after :meth:`close`; UnfitError if none starts.
        """
        made = command, environ
        if made != self._made:
            self.retire()
        with self._lock:
            if self._closed:
                return None
            try:
                process = self._process = self._process or Process(command, environ)
            except OSError as error:
                text = f"cannot start a process: {error.strerror}. Use fewer --workers."
                raise UnfitError(text) from None
            self._made = made
        with contextlib.suppress(OSError):  # it has ended, or the pool is ending
            process.channel.put(job)
        verdict: Verdict | None = next(iter(process.channel), None)
        if self._closed:
            process.channel.socket.close()  # in the thread that reads from it
            return None
        if verdict is None:
            how = how_ended(process.end(GRACE))
            verdict = not_judged(job, Code.ERROR, f"the process that judged it ended {how}")
        if verdict.codes & {Code.DEVICE_ERROR, Code.DEVICE_UNHEALTHY, Code.ERROR}:
            self.retire()
        return verdict

    def retire(self) -> None:
        """End the process, which has no job, by closing its channel."""
        with self._lock:
            process = None if self._closed else self._process
        if process:
            process.channel.socket.close()
            process.end(GRACE)
            with self._lock:
                self._process = None

    def close(self) -> Process | None:
        """Take no more jobs; return the process, which may have one."""
        with self._lock:
            self._closed = True
            return self._process


def environment(*, yields: bool = False) -> dict[str, str]:
    """Return a judge's environment; ``yields``: its idle threads leave the cores to others."""
    found = dict(os.environ) if allocator.unsettable() else allocator.environment(keeps=True)
    if yields:
        let_threads_sleep(found)
    return found


def serve(judge: Callable[..., Verdict] | None = None) -> None:
    """Judge jobs of the pool until it ends; ``judge`` is a test's fake of ``judge_job``."""
    with to_parent(GRACE) as channel:
        if judge is None:
            from losscli.judge.judging import judge_job  # imports torch

            judge = judge_job
        for job in channel:
            channel.put(_judge_safely(job, judge))


def _judge_safely(job: Job, judge: Callable[..., Verdict]) -> Verdict:
    def notify(note: str) -> None:
        tell(printable(f"losscli: {job.file}: {note}"))

    try:
        return judge(job, notify=notify)
    except LosscliError as error:
        usage: Code = Code.BAD_JOB if isinstance(error, UsageError) else Code.ERROR
        code = Code.NO_GPU if isinstance(error, NoGPUError) else usage
        return not_judged(job, code, str(error))
    except Exception as error:
        text = f"losscli itself failed: {type(error).__name__}: {error}"
        return not_judged(job, Code.ERROR, text, log=traceback.format_exc()[-4000:])
