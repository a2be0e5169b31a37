"""Judge one job in stages: parse, build, small checks, all checks, time; return its verdict.

A stage that fails ends them. Reference, seeds and verdict exist in this process alone; the
candidate runs in a worker.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from losscli import __version__
from losscli.bench.plan import lineup
from losscli.cases.axes import FORWARD
from losscli.errors import printable
from losscli.implementations.builtin import of_file
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.errors import NotIsolatedError, SandboxError, SubjectError
from losscli.implementations.implementation import Setting
from losscli.implementations.sandbox.isolation_parts import missing
from losscli.implementations.sandbox.worker_requests import Leftovers
from losscli.implementations.sandbox.zygote import is_of_a_worker
from losscli.implementations.source import REFERENCE_MODULE, Source
from losscli.implementations.subject import bind, share_build, workers
from losscli.judge.against_loss import KnownLoss
from losscli.judge.against_model import AnyModel
from losscli.judge.canary import Canary
from losscli.judge.cause import cause_of
from losscli.judge.device_lock import device_lock
from losscli.judge.first_look import compile_by_call, look_at, look_unmarked
from losscli.judge.home_ground import end_if_changed, note_call, settle_reduction, settle_shapes
from losscli.judge.job import Job
from losscli.judge.judgement import Against, Draft, Ended, Judgement
from losscli.judge.loss_of_file import recognised, why_not_imported
from losscli.judge.times import take_tuning, time_beside, who_computed
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_parts import word_of
from losscli.machine import devices, memory
from losscli.machine.description import describe
from losscli.processes.lock import HeldError
from losscli.reasons import Code
from losscli.truth.model import WrongReferenceError
from losscli.verify.runner import Checks
from losscli.verify.runner import run as run_checks
from losscli.verify.shrink import Shrinker

FATAL = (
    *(Code.PROCESS_DIED, Code.TIMEOUT, Code.WROTE_TO_CHANNEL, Code.FLOODED_OUTPUT),
    *(Code.MEMORY_LIMIT, Code.DEVICE_ERROR, Code.MONKEY_PATCHED, Code.INTERRUPTED),
)
"""Codes after which the candidate gets no more requests."""


def judge_job(job: Job, *, notify: Callable[[str], None] = lambda note: None) -> Verdict:
    """Return the verdict of a job; UsageError if there is no such file, loss or device."""
    device = devices.resolve_device(job.device)
    draft, named, log = Draft(), job.loss, ""
    file: Source | None = None
    judging: Judging | None = None
    canary = Canary(device, job.limits.call_seconds)
    try:
        if trouble := canary.trouble():
            draft.end(Code.DEVICE_UNHEALTHY, trouble)
        with draft.stage("parse"):
            file = Source.read(job.file).called(job.call)
            draft.languages = file.languages
            job, file, model, timed = recognised(job, file, device, draft.notes)
            named = (job.reference or REFERENCE_MODULE) if model else job.loss
            setting = Setting(job.limits, job.arguments, job.require_isolation)
            candidate, seed = of_file(file, setting), int.from_bytes(os.urandom(3))
            against: Against
            if model:
                against = AnyModel(job, device, candidate, of_file(model, setting), seed)
            else:
                against = KnownLoss(job, device, candidate, seed, timed)
        judging = Judging(job, device, file, against, draft, notify)
        judging.run()
    except Ended:
        pass
    except (NotJudgeableError, NotIsolatedError, WrongReferenceError) as error:
        draft.add(error.code, str(error))
    except torch.OutOfMemoryError as error:
        draft.add(Code.INSUFFICIENT_MEMORY, str(error).partition("\n")[0])
    finally:
        workers.end()
        if file:
            log = workers.logs.get(file, "")
        workers.logs.clear()
        if judging and (built := judging.implementation.setting.built):
            Path(built).unlink(missing_ok=True)
        if trouble := canary.trouble():
            notify(f"after {job.file}, {trouble}: nothing more is judged there")
    machine = describe(device)
    return Verdict(
        id=job.id,
        file=job.file,
        word=word_of(draft.reasons),
        against=named,
        device=device,
        reasons=tuple(draft.reasons),
        cause=draft.cause,
        notes=tuple(draft.notes),
        facets=draft.facets(device, quick=job.quick),
        speed=tuple(draft.speed),
        accuracy=draft.accuracy,
        checks=draft.checks,
        dtypes=tuple(draft.dtypes),
        trains=draft.trains,
        isolation=draft.isolation,
        not_isolated=missing(draft.isolation) if draft.isolation else (),
        languages=draft.languages,
        seconds=draft.seconds,
        log=log[-4000:],
        sha256=file.sha256 if file else "",
        losscli=__version__,
        torch=torch.__version__,
        machine=str(machine.get("gpu") or machine.get("cpu") or ""),
        host=f"{machine.get('cpu') or 'unknown CPU'}, {machine.get('cpu_cores')} cores",
    )


class Judging(Judgement):
    """One job after it is parsed."""

    def run(self) -> None:
        """Run the stages; raise Ended where one ends the judging."""
        against, draft = self.against, self.draft
        self._tell_misfits()
        with contextlib.ExitStack() as held:
            held.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)  # the worker needs the other cores
            if not self.file.compiles:
                held.enter_context(self._device(shared=True))
            with draft.stage("build"):
                self._build()
            if self.file.compiles:
                held.enter_context(self._device(shared=True))
            ended = True
            with contextlib.suppress(Ended):
                with draft.stage("small"):
                    settle_shapes(self)
                    note_call(self, against.firsts()[0])
                    for case in against.firsts():
                        look_at(self, case)
                    self._check(against.small())
                    look_unmarked(self, against.firsts()[0])
                    self._tell_first()
                with draft.stage("checks"):
                    for jobs in against.rounds():
                        self._check(jobs)
                    for case in against.firsts_of_others():
                        look_at(self, case)
                    self._check(against.of_others())
                ended = False
            self._find_cause()
            take_tuning(self)
            self._leftovers()  # always: a forged response can look like a wrong value
        if ended:
            raise Ended
        if self.job.own_kernel or self.job.timed:
            with draft.stage("time"), self._device(shared=False):
                who_computed(self)
                if self.job.timed:
                    time_beside(self)

    def _tell_misfits(self) -> None:
        if not self.job.timed or isinstance(self.against, AnyModel):
            return
        free = memory.most_bytes(self.device)
        for task in self.against.tasks():
            _, reasons = lineup(task, FORWARD, free)
            if (why := reasons.get(self.job.file)) and why.code == Code.INSUFFICIENT_MEMORY:
                self.notify(f"{task.case.name} is not going to be timed: {why}")

    @contextlib.contextmanager
    def _device(self, *, shared: bool) -> Iterator[None]:
        started = time.monotonic()
        waits: dict[str, Any] = {"until": self.over, "waits_for_us": is_of_a_worker}
        try:
            with device_lock(self.device, shared=shared, notify=self.notify, **waits) as waited:
                self.waited += waited
                yield
        except HeldError as error:
            holder = printable(error.holder)
            if error.waits_for_us:
                text = f"its {holder} has the lock of {self.device}, for which all timings wait"
                self.draft.end(Code.INTERFERENCE, text)
            waited, most = time.monotonic() - started, self.job.limits.total_seconds
            text = f"waited {waited:.0f} s for {self.device}, whose lock {holder} has"
            self.draft.end(Code.BUSY, f"{text}; judging may take {most:g} s")

    def _build(self) -> None:
        """Import the file and bind what it defines; call it once if it compiles.

        Compiling takes a minute, so it runs without the device's lock: timings do not wait for it.
        """
        against = self.against
        against.start()
        try:
            for case in against.firsts():
                if misfit := self.implementation.unavailable(case):
                    self.draft.end(Code.SIGNATURE, misfit.text)
                bind(self.implementation, case)
            self.draft.isolation = workers.of(self.implementation, self.device).reached
            if self.file.compiles:
                compile_by_call(self)
            against.candidate = share_build(self.implementation, self.device)
            settle_reduction(self)
            against.check()
        except SubjectError as error:
            if isinstance(error, SandboxError):
                self.draft.isolation = error.reached or self.draft.isolation
            code, text = why_not_imported(error, self.file)
            self.draft.end(code, text, case=case.name)
        if reason := end_if_changed(self):
            what = reason.text.removeprefix("changed state that remains: ")
            text = f"its import or constructor changes {what}"
            self.draft.add(Code.KNOWN_LIMITATION, text, facet="global_state")

    def _tell_first(self) -> None:
        what = "value and gradient are" if self.draft.trains else "the value is"
        if self.job.id == self.job.file and not self.draft.failures:
            taken = sum(self.draft.seconds.values())
            self.notify(f"{what} right, after {taken:.0f} s; other checks follow")

    def _find_cause(self) -> None:
        draft = self.draft
        if isinstance(self.against, AnyModel) or word_of(draft.reasons) != "WRONG":
            return
        for case in draft.cases[:2]:
            draft.cause = draft.cause or cause_of(self.problem(case), self.implementation)

    def _check(self, jobs: Iterable[Checks]) -> None:
        shrinker = Shrinker(0.0 if self.draft.now == "small" else 5.0)
        for job in jobs:
            files = {one.name: one for one, _ in job.trials}
            for result in shrinker.follow(run_checks(job), files):
                self.count(result)
            failures = self.draft.failures
            most = 1 if self.job.until_first else 8  # enough to tell what is wrong
            if len(failures) >= most or any(r.code in FATAL for r in failures):
                raise Ended
            self.check_time()
        if self.draft.failures:
            raise Ended

    def _leftovers(self) -> None:
        for worker in workers.known(self.file):
            try:
                left = () if worker.died else worker.ask(Leftovers(), case=None)
            except SubjectError as error:
                self.draft.end(error.code, str(error))
            if left:
                self.draft.end(Code.LEFT_PROCESS, printable(f"left running: {', '.join(left[:5])}"))
