"""Judges one job: parse, build, small checks, all checks, time. The first stage that fails ends it.

What is expected, the seeds and the verdict exist in this process alone; the candidate runs in a
worker.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from losscli import __version__
from losscli.bench.plan import Task, lineup
from losscli.bench.processes import Processes
from losscli.bench.runner import Runner
from losscli.build.diagnosis import placed_error
from losscli.cases.axes import DTYPES, FORWARD, FORWARD_BACKWARD
from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.errors import printable
from losscli.implementations import remote
from losscli.implementations.builtin import of_file
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.errors import (
    NotBuiltError,
    NotIsolatedError,
    SandboxError,
    SubjectError,
)
from losscli.implementations.implementation import Implementation, Setting
from losscli.implementations.process_state import reason_of
from losscli.implementations.remote import RemoteSubject
from losscli.implementations.requests import Call, Forward
from losscli.implementations.sandbox.owners import OWN, TRITON
from losscli.implementations.sandbox.parts import missing
from losscli.implementations.sandbox.process import is_of_a_worker
from losscli.implementations.sandbox.requests import Leftovers, Time, TuningSeconds, WhatRan
from losscli.implementations.source import REFERENCE_MODULE, Source
from losscli.implementations.subject import Subject, bind
from losscli.judge import beside
from losscli.judge.against_loss import KnownLoss, loss_of
from losscli.judge.against_model import AnyModel
from losscli.judge.canary import Canary
from losscli.judge.cause import cause_of
from losscli.judge.device_lock import device_lock
from losscli.judge.draft import Draft, Ended
from losscli.judge.job import Job
from losscli.judge.parts import REFERENCE, Speed, word_of
from losscli.judge.recognition import UnknownLossError, recognise
from losscli.judge.verdict import Verdict
from losscli.losses import EVERY_LOSS
from losscli.machine import devices, memory
from losscli.machine.description import describe
from losscli.processes.lock import HeldError
from losscli.reasons import HOME, Code, Facet
from losscli.runs.records import FAIL, FAILED, SKIPPED, BenchResult
from losscli.truth.inputs import may_be_labels
from losscli.truth.model import WrongReferenceError
from losscli.truth.problem import Problem, ThirdParty
from losscli.verify.runner import Checks
from losscli.verify.runner import run as run_checks
from losscli.verify.shrink import Shrinker

OWN_SHARE = {"cpu": 0.3, "cuda": 0.05}
"""The share of the time from which a file has a kernel of its own: on a CPU the interpreter's time
is in it."""
MOST_CAUSES = 2
"""Cases on which the cause of wrong results is looked for."""
MOST_REASONS = 8
"""Failures after which no more are looked for."""
FATAL = (
    Code.PROCESS_DIED,
    Code.TIMEOUT,
    Code.FORGED,
    Code.FLOODED_OUTPUT,
    Code.MEMORY_LIMIT,
    Code.BROKE_DEVICE,
    Code.PATCHED,
    Code.INTERRUPTED,
)
"""Codes after which nothing more is asked."""
SURELY_SLOW_SECONDS = 0.05
"""The time of a call from which on no other program explains it, and timing again takes long."""
UNMARKED = "in a process that does not look like a judge's: "
ONLY_MARKED = "it is right only in a process that looks like a judge's"
_known: beside.Known = {}
"""Of the losses' references, in this process."""
_OF_GRADIENTS: tuple[Facet, ...] = ("repeated_backward", "second_derivatives")
NO_GRADIENT = "its result has no gradient, so that nothing can be trained with it"
LEFT = "left behind: "
SEVERAL = ("returned a tuple", "returned a list")
MISSING = re.compile(
    "CUDA_HOME|nvcc|not compiled with CUDA|no NVIDIA driver|Ninja is required"
    "|No module named '(triton|tilelang|helion|cutlass|cupy|numba)"
)
"""What errors say where a machine lacks a compiler, a GPU or a language."""
LABELS_ALONE = "it is defined for labels 0 and 1; targets between them give another loss"
LOG_CHARACTERS = 4000


Against = KnownLoss | AnyModel
"""What a candidate is judged against."""


def judge_job(job: Job, *, notify: Callable[[str], None] = lambda note: None) -> Verdict:
    """Return the verdict of a job.

    Args:
        job: which file, against what.
        notify: receives notes for the user.

    Raises:
        UsageError: there is no such file, loss or device.
    """
    device = devices.resolve_device(job.device)
    draft, named, log = Draft(), job.loss, ""
    file: Source | None = None
    judging: _Judging | None = None
    canary = Canary.of(device, job.limits.call_seconds)
    try:
        if trouble := canary.trouble():
            draft.end(Code.QUARANTINED, trouble)
        with draft.stage("parse"):
            file = Source.read(job.file).called(job.call)
            draft.languages = file.languages
            job, file, model, timed = _recognised(job, file, device, draft.notes)
            named = (job.reference or REFERENCE_MODULE) if model else job.loss
            setting = Setting(job.limits, tuple(job.arguments), job.require_isolation)
            candidate, seed = of_file(file, setting), int.from_bytes(os.urandom(3))
            against: Against
            if model:
                against = AnyModel(job, device, candidate, of_file(model, setting), seed)
            else:
                against = KnownLoss(job, device, candidate, named, seed, timed)
        judging = _Judging(job, device, file, against, draft, notify)
        judging.run()
    except Ended:
        pass
    except NotJudgeableError as error:
        draft.add(error.code, str(error))
    except NotIsolatedError as error:
        draft.add(Code.NOT_ISOLATED, str(error))
    except WrongReferenceError as error:
        draft.add(Code.BAD_REFERENCE, str(error))
    except torch.OutOfMemoryError as error:
        draft.add(Code.NO_ROOM, str(error).partition("\n")[0])
    finally:
        remote.workers.end()
        if file:
            log = remote.workers.logs.get(file, "")
        remote.workers.logs.clear()
        if judging and (built := judging.implementation.setting.built):
            Path(built).unlink(missing_ok=True)
        if trouble := canary.trouble():
            notify(f"after {job.file}, {trouble}: nothing more is judged there")
    machine = describe(device)
    return Verdict(
        id=job.id or job.file,
        file=job.file,
        word=word_of(draft.reasons),
        against=named,
        device=device,
        reasons=tuple(draft.reasons),
        cause=draft.cause,
        notes=tuple(draft.notes),
        facets=_explained(draft, job, device),
        speed=tuple(draft.speed),
        accuracy=draft.accuracy,
        checks=draft.checks,
        dtypes=tuple(draft.dtypes),
        trains=draft.trains,
        isolation=draft.isolation,
        not_isolated=missing(draft.isolation) if draft.isolation else (),
        languages=draft.languages,
        seconds=draft.seconds,
        log=log[-LOG_CHARACTERS:],
        sha256=file.sha256 if file else "",
        losscli=__version__,
        torch=torch.__version__,
        machine=str(machine.get("gpu") or machine.get("cpu") or ""),
        host=f"{machine.get('cpu') or 'unknown CPU'}, {machine.get('cpu_cores')} cores",
    )


def _explained(draft: Draft, job: Job, device: str) -> dict[Facet, str]:
    """Return the facets, with why those that were not tested were not."""
    if not draft.tested:
        return {}
    why = "judging ended before" if draft.failures else "--quick" if job.quick else ""
    reasons: dict[Facet, str] = {}
    if device == "cpu":
        reasons["streams_and_graphs"] = "needs a GPU"
    if draft.trains is False:
        reasons |= dict.fromkeys(("gradient", *_OF_GRADIENTS), "it has no gradient")
    found = {}
    for facet, text in draft.facets.items():
        told = reasons.get(facet) or why or "nothing applies"
        found[facet] = f"{text}: {told}" if text == "not tested" else text
    return found


def _recognised(
    job: Job, file: Source, device: str, notes: list[str]
) -> tuple[Job, Source, Source | None, Implementation | None]:
    """Return the job with the loss, parameters, reduction, size and dtype of its reference.

    Those of the file itself where it names no loss and has no reference.

    Returns:
        The job; the file with what it has where it takes no reduction or parameters; the source
        of a reference that computes something else; and the reference that computes the loss,
        beside which the file is timed.

    Raises:
        NotJudgeableError: nothing says which loss it is, or the file cannot be imported.
    """
    file = file.having(job.reduction, {})
    if job.loss:
        return job, file, None, None
    setting = Setting(job.limits, tuple(job.arguments), job.require_isolation)
    reference: Source | None = None
    if job.reference or (file.defines(REFERENCE_MODULE) and file.name != REFERENCE_MODULE):
        given = Source.read(job.reference) if job.reference else replace(file, named=str(file.path))
        reference = given.of_module(REFERENCE_MODULE)
        _ = reference.parsed
        found = of_file(reference, Setting(require_isolation=job.require_isolation))
    else:
        try:
            return msgspec.structs.replace(job, loss=loss_of(file)), file, None, None
        except NotJudgeableError as error:
            if error.code != Code.UNKNOWN_LOSS:
                raise
            unknown = error
        found = of_file(file, setting)
        try:
            remote.workers.of(found, device)
        except SubjectError as error:
            raise NotJudgeableError(*why_not_imported(error, file)) from None
    try:
        known = recognise(found, *(("cpu",) if reference else (device, "float32")))
    except UnknownLossError as error:
        if reference is None and error.raised:
            text = f"{file.named} does not say which loss it computes, and {error.raised}"
            raise NotJudgeableError(Code.UNKNOWN_LOSS, text) from None
        if reference is None:
            raise unknown from None
        return job, file, reference, None
    except WrongReferenceError as error:
        if reference is None and isinstance(error.__cause__, SubjectError):
            raise NotJudgeableError(*why_not_imported(error.__cause__, file)) from None
        raise
    notes.append(f"computes {known}")
    sizes = job.sizes or ((known.size,) if known.size else ())
    fields: dict[str, Any] = {
        "loss": known.loss,
        "reduction": job.reduction or known.reduction,
        "dtypes": job.dtypes or ((known.dtype,) if known.dtype != "float32" else ()),
        "parameters": {**known.parameters, **job.parameters},
    }
    has = fields["reduction"], known.parameters
    timed = of_file(reference.having(*has)) if reference else None
    return msgspec.structs.replace(job, sizes=sizes, **fields), file.having(*has), None, timed


def why_not_imported(error: SubjectError, file: Source) -> tuple[Code, str]:
    """Return why a file cannot be imported; of a compiler, what it wrote."""
    text, code = str(error), error.code if isinstance(error, SandboxError) else Code.IMPORT_FAILED
    if isinstance(error, NotBuiltError):
        if error.compiler:
            remote.workers.end(file)
            log = remote.workers.logs.get(file, "")
            text = placed_error(log, file.text, file.path.name) or text
        else:
            code = Code.IMPORT_FAILED
    return (Code.MISSING_TOOL, text) if MISSING.search(text) else (code, text)


class _Judging:
    """One job, beyond its parse."""

    def __init__(
        self,
        job: Job,
        device: str,
        file: Source,
        against: Against,
        draft: Draft,
        notify: Callable[[str], None],
    ) -> None:
        self.job, self.device, self.file, self.against = job, device, file, against
        self.draft, self.notify = draft, notify
        draft.optional, draft.given = against.others, against.parameters
        draft.usual = against.usual_reductions
        self.over = time.monotonic() + job.limits.total_seconds
        self.waited = 0.0
        """Seconds of waiting for the device."""

    @property
    def implementation(self) -> Implementation:
        """The candidate, with what is known of it until now."""
        return self.against.candidate

    def run(self) -> None:
        """Go through the stages."""
        against, draft = self.against, self.draft
        self._tell_misfits()
        with self._device(shared=True), _one_thread():
            with draft.stage("build"):
                self._build()
            ended = True
            with contextlib.suppress(Ended):
                with draft.stage("small"):
                    for case in against.firsts():
                        self._look_at(case)
                    self._check(against.small(trains=bool(draft.trains)))
                    self._look_unmarked(against.firsts()[0])
                    self._tell_first()
                with draft.stage("checks"):
                    for jobs in against.rounds(trains=bool(draft.trains)):
                        self._check(jobs)
                    for case in against.firsts_of_others():
                        self._look_at(case)
                    self._check(against.of_others(trains=bool(draft.trains)))
                ended = False
            self._find_cause()
            self._take_tuning()
            self._leftovers()  # whatever else is wrong: a second answer can pass for a wrong value
        if ended:
            raise Ended
        if self.job.own_kernel or self.job.timed:
            with draft.stage("time"), self._device(shared=False):
                self._who_computed()
        if self.job.timed:
            with draft.stage("time"), self._device(shared=False):
                self._time()

    def _tell_misfits(self) -> None:
        """Say which sizes cannot be timed, before anything is built."""
        if not self.job.timed or isinstance(self.against, AnyModel):
            return
        free = memory.most_bytes(self.device)
        for task in self.against.tasks(trains=False):
            _, reasons = lineup(task, FORWARD, free)
            if (why := reasons.get(self.job.file)) and why.code == Code.NO_ROOM:
                self.notify(f"{task.case.name} is not going to be timed: {why}")

    @contextlib.contextmanager
    def _device(self, *, shared: bool) -> Iterator[None]:
        """Hold the lock of the device, if it is free before the time of the job is over."""
        started, most = time.monotonic(), f"{self.job.limits.total_seconds:g} s"
        hold = device_lock(
            self.device,
            shared=shared,
            until=self.over,
            waits_for_us=is_of_a_worker,
            notify=self.notify,
        )
        try:
            with hold as waited:
                self.waited += waited
                yield
        except HeldError as error:
            holder = printable(error.holder)
            if error.waits_for_us:
                text = f"its {holder} has the lock of {self.device}, for which all timings wait"
                self.draft.end(Code.SLOWS_OTHERS, text)
            waited = time.monotonic() - started
            text = f"waited {waited:.0f} s for {self.device}, whose lock {holder} has"
            self.draft.end(Code.BUSY, f"{text}; judging may take {most}")

    def _build(self) -> None:
        """Import the file, and bind what it defines."""
        self.against.start()
        try:
            for case in self.against.firsts():
                if misfit := self.implementation.unavailable(case):
                    self.draft.end(Code.SIGNATURE, misfit.text)
                bind(self.implementation, case)
            self.draft.isolation = remote.workers.of(self.implementation, self.device).reached
            self.against.candidate = remote.share_build(self.implementation, self.device)
            self._settle_reduction()
            self.against.check()
        except SubjectError as error:
            if isinstance(error, SandboxError):
                self.draft.isolation = error.reached or self.draft.isolation
            code, text = why_not_imported(error, self.file)
            self.draft.end(code, text, case=case.name)
        if changed := remote.changes_of(self.file):
            reason = reason_of(changed)
            if not all(change.mild for change in changed):
                self.draft.end(reason.code, reason.text)
            text = f"its import changes {reason.text.removeprefix(LEFT)}"
            self.draft.add(Code.LIMITED, text, facet="global_state")

    def _tell_first(self) -> None:
        """Say that value and gradient are right, where other checks follow."""
        what = "value and gradient are" if self.draft.trains else "the value is"
        if self.job.id == self.job.file and not self.draft.failures:
            taken = sum(self.draft.seconds.values())
            self.notify(f"{what} right, after {taken:.0f} s; other checks follow")

    def _find_cause(self) -> None:
        """Find out what wrong results are."""
        if (
            self.draft.cause
            or word_of(self.draft.reasons) != "WRONG"
            or isinstance(self.against, AnyModel)
        ):
            return
        for case in self.draft.cases[:MOST_CAUSES]:
            self.draft.cause = cause_of(self._problem(case), self.implementation)
            if self.draft.cause:
                return

    def _settle_reduction(self) -> None:
        """Judge without a reduction what takes none and returns a loss for each unit."""
        against, job = self.against, self.job
        if isinstance(against, AnyModel) or job.reduction or against.definition.takes("reduction"):
            return
        reductions = EVERY_LOSS[against.loss].reductions
        case = against.firsts()[0]
        if case.reduction == "none" or "none" not in reductions:
            return
        problem = self._problem(case)
        with contextlib.suppress(SubjectError):
            loss = bind(self.implementation, case).send(Forward(problem.operands))
            if loss.shape == problem.oracle.unreduced_shape != problem.oracle.loss_shape():
                self.draft.notes.append("it takes no reduction and returns one for each: none")
                against.job = self.job = msgspec.structs.replace(job, reduction="none")
                self.draft.usual = against.usual_reductions
                own = self.file.having("none", self.file.parameters)
                against.candidate = of_file(own, self.implementation.setting)

    def _look_at(self, case: Case) -> None:
        """Find out whether it has a gradient; if its value is wrong, that says most.

        A dtype that it need not take is left out where it raises or gives another dtype.
        """
        problem, draft, is_right = self._problem(case), self.draft, False
        optional = case.dtype in self.against.others
        dtypes = [each for each in case.dtypes.values() if each in DTYPES]
        draft.dtypes |= dict.fromkeys(dtypes)
        try:
            subject = bind(self.implementation, case)
            subject = self._check_value(problem, subject)
            if self.implementation.setting.labels:
                problem = self._problem(case)
            if not draft.failures:
                for name, values in problem.sibling().operands.items():
                    problem.operands[name].copy_(values)
                self._check_value(problem.like(problem.operands), subject, "new contents: ")
            is_right = not draft.failures
            if draft.trains is not False:
                subject.send(problem.call(problem.filled(1.0)))
                self._look_at_others(problem, subject)
                draft.trains = True
        except SubjectError as error:
            died, raised = isinstance(error, SandboxError), error.code == Code.RAISED
            backward = not optional and is_right and not died
            if backward and (raised or error.code == Code.NO_GRADIENT):
                text = f"{NO_GRADIENT}; backward {error}" if raised else NO_GRADIENT
                draft.add(Code.NO_GRADIENT, text, case=case.name)
                draft.trains = False
                if raised:
                    self.against.candidate = self.implementation.but(lacking=case.spec.names)
                return
            instead = None if died else self.against.instead_of(case)
            if instead is None:
                draft.end(error.code, str(error), case=case.name)
            code: Code = Code.REFUSES if raised else Code.LIMITED
            facet: Facet = "dtypes" if optional else "sizes"
            text = f"operands of {case.dtype}: {error}" if optional else str(error)
            draft.add_first(code, text, check="value", facet=facet, case=case.name)
            if optional:
                del draft.dtypes[case.dtype]
            else:
                draft.home = {*HOME} - {facet}
            for other in instead:
                self._look_at(other)

    def _problem(self, case: Case) -> Problem:
        """Return the problem of a case, of a kernel of others."""
        setting = self.implementation.setting
        third_party = ThirdParty(setting.lacking, self.against.reference, setting.labels)
        return Problem.of(case, third_party=third_party)

    def _look_unmarked(self, case: Case) -> None:
        """Find out whether it is right in processes that do not look like a judge's, either."""
        if isinstance(case, ModelCase) or self.implementation.setting.mends:
            return
        first = self._problem(case)
        problems, calls = (first, first.sibling()), []
        for problem in problems:
            wrt = problem.wrt[:1] if self.draft.trains else ()
            operands = {name: each.cpu() for name, each in problem.operands.items()}
            calls.append(Call(operands, wrt, problem.ones.cpu()))
        try:
            answers = remote.workers.unmarked(self.implementation, calls, case)
        except SubjectError as error:
            self.draft.end(error.code, f"{UNMARKED}{error}", case=case.name)
        for problem, answer in zip(problems, answers, strict=True):
            for part, got in answer.items().items():
                own = None if got is None else got.to(self.device)
                outcome, _ = problem.judge(part, own, problem.filled(1.0))
                if outcome.status == FAIL:
                    self.draft.cause = ONLY_MARKED
                    text = f"{UNMARKED}{part}: {outcome.reason}"
                    self.draft.end(Code.WRONG, text, check="value", case=case.name)

    def _look_at_others(self, problem: Problem, subject: Subject) -> None:
        """Find out whether it refuses gradients of which PyTorch's own function has none."""
        operands = problem.case.spec.operands
        lacking = tuple(each.name for each in operands if not each.torch_differentiates)
        if {*lacking} & {*problem.wrt}:
            try:
                subject.send(problem.call(problem.filled(1.0, problem.wrt)))
            except SubjectError as error:
                if not error.refused:
                    raise
                self.against.candidate = self.implementation.but(lacking=lacking)

    def _check_value(self, problem: Problem, subject: Subject, where: str = "") -> Subject:
        """Take a value that is wrong; an operand that was overwritten ends the judging.

        Returns:
            The subject, whose results are mended where they did not fit.
        """
        before = {name: each.clone() for name, each in problem.operands.items()}
        problem.mark()
        case, mends = problem.case.name, self.implementation.setting.mends
        try:
            loss = subject.send(Forward(problem.operands))
        except SubjectError as error:
            if not str(error).startswith(SEVERAL) or "results" in mends:
                raise
            self.draft.notes.append("it returns several results: the first that fits is the loss")
            self.against.candidate = self.implementation.but(mends=(*mends, "results"))
            return self._check_value(problem, bind(self.implementation, problem.case), where)
        if name := problem.spoiled():
            if "operands" in mends:
                self.draft.end(
                    Code.OVERWROTE, f"{where}overwrote its {name}", check="value", case=case
                )
            text = f"it overwrites its {name}, so each call gets copies, which its times include"
            self.draft.add(Code.LIMITED, text, check="value", facet="inputs", case=case)
            self.against.candidate = self.implementation.but(mends=(*mends, "operands"))
            for each, values in before.items():
                problem.operands[each].copy_(values)
            return self._check_value(problem, bind(self.implementation, problem.case), where)
        verdict, errors = problem.judge_loss(loss)
        misfits = verdict.status == FAIL and errors is None
        if misfits and problem.case.dtype in self.against.others:
            raise SubjectError(verdict.reason, Code.MISFIT)
        if misfits and self._can_mend(loss, problem):
            self.draft.add(Code.MISFIT, verdict.reason, check="value", facet="value", case=case)
            if self.job.until_first:
                raise Ended
            self.against.candidate = self.implementation.but(mends=(*mends, "results"))
            return self._check_value(problem, bind(self.implementation, problem.case), where)
        if verdict.status == FAIL and self._is_right_for_labels(problem.case):
            text = f"{LABELS_ALONE}: {verdict.reason}"
            self.draft.add(Code.LIMITED, text, check="value", facet="value", case=case)
            lacking = [o.name for o in problem.case.spec.operands[1:] if may_be_labels(o)]
            lacking += self.implementation.setting.lacking
            self.against.candidate = self.implementation.but(labels=True, lacking=tuple(lacking))
            return bind(self.implementation, problem.case)
        if verdict.status == FAIL and not where and self.against.has_other_size(problem.case):
            raise SubjectError(verdict.reason, Code.LIMITED)
        if verdict.status == FAIL:
            text = where + verdict.reason
            self.draft.cases.append(problem.case)
            self.draft.add(Code.WRONG, text, check="value", facet="value", case=case)
            # What its gradient does may say less, unless nothing else is known of the formula.
            if errors is None or not isinstance(problem.case, ModelCase):
                raise Ended
        return subject

    def _is_right_for_labels(self, case: Case) -> bool:
        """Tell whether a value that is wrong is right where targets are labels 0 and 1."""
        setting = self.implementation.setting
        if setting.labels or not any(map(may_be_labels, case.spec.operands[1:])):
            return False
        third_party = ThirdParty(setting.lacking, self.against.reference, labels=True)
        problem = Problem.of(case, third_party=third_party)
        loss = bind(self.implementation, case).send(Forward(problem.operands))
        return problem.judge_loss(loss)[0].status != FAIL

    def _can_mend(self, loss: torch.Tensor, problem: Problem) -> bool:
        """Tell whether a loss that does not fit is one number, or one for each due, of the device.

        Or one for each element or row, where a mean or sum is due. That is said once: what has been
        mended fits.
        """
        due = problem.oracle.loss_shape()
        fits = loss.shape in (due, problem.oracle.unreduced_shape) or (
            loss.numel() == due.numel() == 1
        )
        return (
            "results" not in self.implementation.setting.mends
            and not isinstance(problem.case, ModelCase)
            and fits
            and loss.is_floating_point()
            and loss.device == problem.prediction.device
        )

    def _check(self, jobs: Iterable[Checks]) -> None:
        """Run checks; failures are shrunk, and end the judging."""
        shrinker = Shrinker(0.0 if self.draft.now == "small" else 5.0)
        for job in jobs:
            files = {one.name: one for one, _ in job.trials}
            for result in shrinker.follow(run_checks(job), files):
                self.draft.count(result)
            failures = self.draft.failures
            most = 1 if self.job.until_first else MOST_REASONS
            if len(failures) >= most or any(r.code in FATAL for r in failures):
                raise Ended
            self._check_time()
        if self.draft.failures:
            raise Ended

    def _leftovers(self) -> None:
        """Look for processes that it has left, unless its worker has died."""
        for worker in remote.workers.known(self.file):
            if worker.died:
                continue
            try:
                left = worker.ask(Leftovers(), case=None)
            except SubjectError as error:
                self.draft.end(error.code, str(error))
            if left:
                self.draft.end(Code.LEFT_PROCESS, printable(f"left running: {', '.join(left[:5])}"))

    def _take_tuning(self) -> None:
        """Take how long it has tuned kernels until now."""
        for worker in remote.workers.known(self.file):
            with contextlib.suppress(SubjectError):  # it has died
                if tuned := worker.ask(TuningSeconds(), case=None):
                    self.draft.seconds["tuning"] = round(tuned, 3)

    def _check_time(self) -> None:
        """End the judging when its time is over; a wait for others is no fault of the file."""
        late = time.monotonic() - self.over
        told = f"judging took more than {self.job.limits.total_seconds:g} s"
        if late > self.waited:
            self.draft.end(Code.TIMEOUT, told)
        if late > 0:
            waited = f"{self.waited:.0f} s of which it waited for {self.device}"
            self.draft.end(Code.BUSY, f"{told}, {waited}")

    def _who_computed(self) -> None:
        """Say whose operators and kernels run in a call, and whether a kernel of its own does."""
        against, draft = self.against, self.draft
        trains = bool(draft.trains)
        case = against.tasks(trains=trains)[0].case
        try:
            subject = RemoteSubject.bind(self.implementation, case)
            operands = self._problem(case).operands
            pass_ = FORWARD_BACKWARD if trains else FORWARD
            subject.send(Time(pass_, operands, evicts=False, captured=False))
            found = subject.send(WhatRan())
        except SubjectError as error:
            if self.job.own_kernel:
                draft.notes.append(f"who computed it is not known: {error}")
            return
        own = sum(share for who, share in found.shares.items() if who in (OWN, TRITON))
        what = "kernels" if self.device != "cpu" else "operators of PyTorch's"
        named = ", ".join(f"{share:.0%} {who}" for who, share in sorted(found.shares.items()))
        draft.notes.append(f"ran: {found.count} {what}, {named}")
        if own >= OWN_SHARE[self.device.partition(":")[0]]:
            return
        if self.file.parsed.compiled:
            draft.notes.append("it builds a kernel that never ran")
        if self.job.own_kernel:
            draft.add(Code.NO_OWN_KERNEL, f"{1 - own:.0%} of the time is PyTorch's", case=case.name)

    def _time(self) -> None:
        """Time it beside others."""
        against, job = self.against, self.job
        several = against.in_processes and not job.quick
        timed: list[tuple[Task, list[BenchResult]]] = []
        with Processes(self.device, torch.get_num_threads()) as processes:
            run: beside.Run = processes.run if several else _runner(self.device).run
            for task in against.tasks(trains=bool(self.draft.trains)):
                self._check_time()
                results = list(run(task)) if several else self._confirmed(run, task)
                timed.append((task, results))
                for result in results:
                    self._take_time(result)
            self._take_tuning()
            known = {} if several or isinstance(against, AnyModel) else _known
            for task, results in timed:
                reference = next(
                    r.implementation
                    for r in results
                    if against.called(r.implementation) == REFERENCE
                )
                for code, text, pass_ in beside.findings(
                    run, task, results, job.file, reference, known
                ):
                    self.draft.add(code, text, case=f"{task.case.name}, {pass_}")

    def _confirmed(self, run: beside.Run, task: Task) -> list[BenchResult]:
        """Time it in one process; again where it is slower, for another program may have run."""
        results = list(run(task))
        slower = [r.seconds.median for r in results if self._slower(r) and r.seconds]
        if not slower or max(slower) > SURELY_SLOW_SECONDS:
            return results
        again = {r.pass_: r for r in run(task) if self._is_faultless(r)}
        return [again.get(r.pass_, r) if self._slower(r) else r for r in results]

    def _is_faultless(self, result: BenchResult) -> bool:
        """Tell whether a result is of the candidate, has times, and none of them is slower."""
        own = result.implementation == self.job.file
        return own and bool(result.seconds) and not self._slower(result)

    def _slower(self, result: BenchResult) -> dict[str, float]:
        """Return the ratios of a candidate's times to those of others that are clearly shorter."""
        if result.implementation != self.job.file:
            return {}
        called = {self.against.called(other): ratio for other, ratio in result.ratios.items()}
        return {
            other: ratio.value
            for other, ratio in called.items()
            if other in self.against.compared
            and (ratio.verdict == "slower" or ratio.high < beside.CLEARLY_SLOWER)
        }

    def _take_time(self, result: BenchResult) -> None:
        """Take a result of the bench: only the candidate's is judged."""
        draft, against = self.draft, self.against
        name = f"{result.case.name}, {result.pass_}"
        if result.implementation != self.job.file:
            fails = result.status == FAILED and result.code != Code.CLOCK_DISAGREES
            if fails and isinstance(against, AnyModel):
                draft.end(Code.BAD_REFERENCE, f"the reference {result.reason}", case=name)
            return
        if result.status == FAILED:
            draft.add(result.code or Code.WRONG, result.reason, case=name)
            return
        if result.status == SKIPPED:
            code: Code = Code.NO_ROOM if result.code in beside.NO_ROOM else Code.ERROR
            if result.code != Code.NOT_APPLICABLE:
                draft.add(code, result.reason, case=name)
            return
        assert result.seconds
        share = result.gbps / result.limit_gbps if result.gbps and result.limit_gbps else None
        if result.impossible:
            draft.add(Code.IMPOSSIBLE, result.reason, case=name)
        ratios = {against.called(other): ratio for other, ratio in result.ratios.items()}
        values = {other: (ratio.value, ratio.low, ratio.high) for other, ratio in ratios.items()}
        measured = result.seconds.median, values, share, result.peak_extra_bytes
        draft.speed.append(Speed(result.case.name, result.pass_, *measured))
        for other, ratio in self._slower(result).items():
            draft.add(Code.SLOWER, f"{1 / ratio:.2f} times the time of {other}", case=name)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread here: others would wait for work on the cores that the worker needs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _runner(device: str) -> Runner:
    """Return the runner of quick timings, which measures the limits of the memory once."""
    return Runner(device)
