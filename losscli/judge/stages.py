"""Judges one job: parse, build, small checks, all checks, time. The first stage that fails ends it.

What is expected, the seeds and the verdict exist in this process alone; the candidate runs in a
worker.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import torch

from losscli import __version__
from losscli.axes import FORWARD, FORWARD_BACKWARD, Distribution, PassName
from losscli.bench.plan import Task
from losscli.bench.plan import plan as plan_bench
from losscli.bench.processes import Processes
from losscli.bench.runner import Runner
from losscli.config.expansion import expand
from losscli.config.schema import Config, Inputs, LossChoice, Timing, off_default
from losscli.implementations import CUSTOM, remote
from losscli.implementations.builtin import of_file
from losscli.implementations.errors import SandboxError, SubjectError
from losscli.implementations.files import (
    REFERENCE_MODULE,
    Definition,
    NotJudgeableError,
    UserFile,
    read_file,
)
from losscli.implementations.sandbox.process import Allowance
from losscli.implementations.subject import bind
from losscli.judge.canary import Canary
from losscli.judge.device_lock import device_lock
from losscli.judge.findings import Deadline, Ended, Findings, build_code_of, code_of, stage
from losscli.judge.job import Job
from losscli.judge.modules.judging import ModuleJudging
from losscli.judge.parts import Accuracy, JudgeReason, Speed, Stage
from losscli.judge.reasoning import reason_of, word_of
from losscli.judge.recognition import UnknownLossError, WrongReferenceError, recognise
from losscli.judge.threads import one_thread
from losscli.judge.verdict import RIGHT_WORDS, Verdict
from losscli.losses import EVERY_LOSS, ROW_FORMS
from losscli.machine import devices
from losscli.machine.description import describe
from losscli.runs.records import FAIL, FAILED, OK, SKIPPED, WARN, BenchResult, VerifyResult
from losscli.truth.problem import Problem
from losscli.verify.checks import CHECKS
from losscli.verify.repeating import line
from losscli.verify.runner import plan as plan_verify
from losscli.verify.runner import run as run_checks
from losscli.verify.shrink import Shrinker

SMALL = ((33, 65),)
SIZES = ((37, 101), (173, 1001))
LARGE = ((2048, 4096),)
TIMED_SIZES = ((1024, 1024), (4096, 4096))
QUICK_TIMED_SIZES = ((1024, 1024),)
SMALL_CHECKS = ("value", "gradients")
SMALL_RESULTS = ("value", "gradients", "input_gradient", "target_gradient")
LEFT_OUT = ("changed_operands",)
"""Operands that get other memory between forward and backward: no training step does that."""
QUICK_CHECKS = (
    *("layouts", "broadcasts", "branches", "coverage", "memory", "specials", "steps"),
    *("left_behind", "determinism", "retained", "second_derivatives"),
    *("row_values", "row_layouts", "row_relations"),
)
ONE_PROCESS = 2**28
"""Elements from which on one process takes the times, not several: each makes and checks gigabytes
anew, which takes most of a minute."""
CLEARLY_SLOWER = 0.8
"""A ratio that is below this with its interval is slower, however few the samples."""
MOST_REASONS = 8
"""Failures after which no more are looked for."""
ALL_CHECKS = tuple(name for name in CHECKS if name not in LEFT_OUT)
FORWARD_CHECKS = ("value",)
"""Those that a loss without a gradient can pass."""
NO_GRADIENT = ("does not require grad", "does not have a grad_fn")


def judge_job(job: Job, *, notify: Callable[[str], None] = lambda note: None) -> Verdict:
    """Return the verdict of a job.

    Args:
        job: which file, against what.
        notify: receives notes for the user.

    Raises:
        UsageError: there is no such file, loss or device.
    """
    of_file.cache_clear()  # a search writes its next candidate over the last
    device = devices.resolve_device(job.device)
    found = Findings()
    file: UserFile | None = None
    against, model = job.loss, ""
    canary = Canary.of(device, job.limits.call_seconds)
    try:
        if trouble := canary.trouble():
            found.reasons.append(JudgeReason("quarantined", "parse", trouble))
            raise Ended
        with stage(found, "parse"):
            try:
                file = read_file(job.file)
                if not job.loss and (job.reference or file.defines(REFERENCE_MODULE)):
                    try:
                        job = _by_reference(job, file, device, found)
                    except UnknownLossError:
                        against = model = job.reference or REFERENCE_MODULE
                if model:
                    definition = file.definition("")
                else:
                    against = job.loss or _loss_of(file)
                    definition = file.definition(against)
                    _check_arguments(file, definition, against, tuple(job.arguments))
            except NotJudgeableError as error:
                found.reasons.append(JudgeReason(error.code, "parse", str(error)))
                raise Ended from None
        judging: _Judging | ModuleJudging
        if model:
            judging = ModuleJudging(job, device, file, definition, found, notify)
        else:
            judging = _Judging(job, device, file, definition, against, found, notify)
        with remote.use(_setting(job)):
            judging.run()
    except Ended:
        pass
    finally:
        log = ""
        if file:
            remote.workers.end(file)
            log = remote.workers.logs.pop(file, "")
        if trouble := canary.trouble():
            notify(f"after {job.file}, {trouble}: nothing more is judged there")
    return _verdict(job, device, file, against, found, log)


class _Judging:
    """One job, beyond its parse."""

    def __init__(
        self,
        job: Job,
        device: str,
        file: UserFile,
        definition: Definition,
        loss: str,
        found: Findings,
        notify: Callable[[str], None],
    ) -> None:
        self.job, self.device, self.file, self.definition = job, device, file, definition
        self.loss, self.found, self.notify = loss, found, notify
        self.implementation = of_file(job.file)
        self.seed = int.from_bytes(os.urandom(3))
        self.deadline = Deadline(job.limits.total_seconds)

    def run(self) -> None:
        """Go through the stages."""
        found, job = self.found, self.job
        with device_lock(self.device, shared=True, notify=self.notify), one_thread():
            with stage(found, "build"):
                self._build()
            try:
                with stage(found, "small"):
                    self._small()
            except torch.OutOfMemoryError as error:
                found.end(JudgeReason("no_room", "small", str(error).partition("\n")[0]))
            with stage(found, "checks"):
                if job.quick:
                    self._check("checks", SIZES[:1], SMALL_CHECKS)
                    self._check("checks", SIZES[1:], SMALL_CHECKS, every=False)
                    self._check("checks", SIZES[:1], QUICK_CHECKS, every=False)
                else:
                    self._check("checks", SIZES, ALL_CHECKS)
                    self._check("checks", LARGE, SMALL_CHECKS, every=False)
                self._leftovers()
        if job.timed:
            with stage(found, "time"):
                self._time()

    def _build(self) -> None:
        """Import the file, and bind what it defines."""
        case = next(expand(self._config(SMALL), self.device))
        try:
            bind(self.implementation, case)
            worker = remote.workers.of(self.file, self.device)
            self.found.isolation = worker.reached
        except SubjectError as error:
            self.found.end(JudgeReason(build_code_of(error), "build", str(error), case=case.name))
        self._patched("build")

    def _small(self) -> None:
        """Find out whether it has a gradient, and check little."""
        case = next(expand(self._config(SMALL), self.device))
        problem = Problem.of(case)
        subject = bind(self.implementation, case)
        try:
            verdict, _ = problem.judge_loss(subject.loss(problem.operands))
            if verdict.status == FAIL:  # what its gradient does may say less
                code = reason_of(verdict.code, verdict.reason)
                self.found.end(JudgeReason(code, "small", verdict.reason, "value", case.name))
            try:
                subject.answer(problem.call(problem.filled(1.0)))
                self.found.trains = True
            except SandboxError:
                raise
            except SubjectError as error:
                if not any(word in str(error) for word in NO_GRADIENT):
                    raise
                self.found.trains = False
                text = "its result has no gradient, so that nothing can be trained with it"
                self.found.reasons.append(JudgeReason("no_gradient", "small", text, case=case.name))
        except SubjectError as error:
            self.found.end(JudgeReason(code_of(error), "small", str(error), case=case.name))
        self._check("small", SMALL, SMALL_CHECKS)

    def _check(
        self,
        stage: Stage,
        sizes: tuple[Any, ...],
        names: tuple[str, ...],
        *,
        every: bool = True,
    ) -> None:
        """Run checks; failures are shrunk, and end the judging with the stage.

        ``every``: over all reductions and parameters; else over a mean with parameters off their
        defaults.
        """
        config = self._config(sizes, every=True)
        if not every:
            config = replace(
                config, losses=config.losses[-1:], reductions=config.reductions[-2:][:1]
            )
        if not self.found.trains:
            config = replace(config, passes=(FORWARD,))
            names = tuple({*names} & {*FORWARD_CHECKS}) or FORWARD_CHECKS
        shrinker = Shrinker(0.0 if stage == "small" else 5.0)
        for work in plan_verify(config, self.device, checks=names):
            for result in shrinker.follow(run_checks(work)):
                self._count(stage, result)
            failures = [r for r in self.found.reasons if word_of([r]) not in RIGHT_WORDS]
            if len(failures) >= MOST_REASONS or any(r.code in _FATAL for r in failures):
                raise Ended
            self.deadline.check(self.found, stage)
        if self.found.failed:
            raise Ended

    def _count(self, stage: Stage, result: VerifyResult) -> None:
        """Take a result of a check."""
        found, status = self.found, result.status
        if not result.shrunk_from:
            found.checks[status] = found.checks.get(status, 0) + 1
        found.accuracy = _worst(found.accuracy, result)
        if result.check == "determinism" and status in ("pass", WARN):
            same = status == "pass"
            before = found.accuracy.deterministic
            found.accuracy = msgspec.structs.replace(
                found.accuracy, deterministic=same if before is None else before and same
            )
        mild = status == WARN and result.code == "no_worse_than_torch"
        if status != FAIL and not mild:
            return
        code = reason_of(result.code, result.reason)
        if code == "raised" and any(word in result.reason for word in NO_GRADIENT):
            code = "wrong"  # of the target, or where something is new
        if (code, stage) == ("raised", "checks") and result.check not in SMALL_RESULTS:
            code = "refuses"
        reason = JudgeReason(code, stage, result.told, result.check, result.case.name, line(result))
        known = [r for r in found.reasons if (r.check, r.code) == (reason.check, reason.code)]
        if result.shrunk_from and known:
            found.reasons[found.reasons.index(known[0])] = reason
        elif not known:
            found.reasons.append(reason)

    def _patched(self, stage: Stage) -> None:
        """Take what the import has changed in its process."""
        changed = remote.changes_of(self.file)
        if changed:
            text = f"left behind: {'; '.join(changed)}"
            self.found.end(JudgeReason(reason_of("left_behind", text), stage, text))

    def _leftovers(self) -> None:
        """Look for processes that it has left."""
        worker = remote.workers.of(self.file, self.device)
        try:
            left = worker.ask("leftovers", case=None)
        except SubjectError as error:
            self.found.end(JudgeReason(code_of(error), "checks", str(error)))
        if left:
            text = f"left running: {', '.join(left[:5])}"
            self.found.end(JudgeReason("left_process", "checks", text))

    def _time(self) -> None:
        """Time it beside PyTorch and losscli's own."""
        job = self.job
        sizes = job.sizes or (QUICK_TIMED_SIZES if job.quick else TIMED_SIZES)
        others = ("reference",) if job.quick else ("reference", "functional", "compile", CUSTOM)
        passes: tuple[PassName, ...] = (FORWARD, FORWARD_BACKWARD)
        timing = Timing(min_time=0.05, max_time=0.3, processes=1) if job.quick else Timing(0.2, 1.5)
        config = replace(
            self._config(sizes, distribution="uniform"),
            passes=passes if self.found.trains else (FORWARD,),
            implementations=(job.file, *others),
            timing=timing,
        )
        threads = torch.get_num_threads()
        with (
            device_lock(self.device, notify=self.notify),
            Processes(self.device, threads) as processes,
        ):
            runner = _runner(self.device)
            for task in plan_bench(config, self.device):
                self.deadline.check(self.found, "time")
                timed = runner.run(task) if job.quick else processes.run(worth_processes(task))
                for result in timed:
                    self._take_time(result)

    def _take_time(self, result: BenchResult) -> None:
        """Take a result of the bench: only the candidate's is judged."""
        if result.implementation != self.job.file:
            return
        name = f"{result.case.name}, {result.pass_}"
        if result.status == FAILED:
            code = reason_of(result.code, result.reason)
            self.found.reasons.append(JudgeReason(code, "time", result.reason, case=name))
            return
        if result.status == SKIPPED:
            code = "no_room" if result.code in ("no_room", "out_of_memory") else "error"
            if result.code != "not_applicable":
                self.found.reasons.append(JudgeReason(code, "time", result.reason, case=name))
            return
        assert result.status == OK
        assert result.seconds
        if result.impossible:
            self.found.reasons.append(JudgeReason("impossible", "time", result.reason, case=name))
        ratios = {
            other: (ratio.value, ratio.low, ratio.high) for other, ratio in result.ratios.items()
        }
        share = result.gbps / result.limit_gbps if result.gbps and result.limit_gbps else None
        seconds = result.seconds.median
        extra = result.peak_extra_bytes
        self.found.speed.append(
            Speed(result.case.name, result.pass_, seconds, ratios, share, extra)
        )
        for other in ("reference", "functional", "compile"):
            ratio = result.ratios.get(other)
            if ratio and (ratio.verdict == "slower" or ratio.high < CLEARLY_SLOWER):
                text = f"{1 / ratio.value:.2f} times the time of {other}"
                self.found.reasons.append(JudgeReason("slower", "time", text, case=name))

    def _config(
        self, sizes: tuple[Any, ...], *, every: bool = False, distribution: Distribution = "normal"
    ) -> Config:
        """Return a config of the loss: with ``every``, all reductions and parameters it takes."""
        job, spec = self.job, EVERY_LOSS[self.loss]
        takes = self.definition.takes
        choices = [LossChoice(self.loss, {n: (v,) for n, v in job.parameters.items()})]
        if every:
            for name in (*_forms(self.loss, self.definition), self.loss):
                others: dict[str, tuple[float, ...]] = dict(choices[0].parameters)
                if not job.parameters:
                    defaults = off_default(EVERY_LOSS[name])
                    others = {n: (v,) for n, v in defaults.items() if takes(n)}
                if name != self.loss or (others and not job.parameters):
                    choices.append(LossChoice(name, others))
        usual = "mean" if "mean" in spec.reductions else spec.reductions[0]
        reductions: tuple[Any, ...] = (job.reduction or usual,)
        if every and not job.reduction and takes("reduction"):
            reductions = spec.reductions
        return Config(
            device=self.device,
            losses=tuple(choices),
            sizes=tuple(sizes),
            dtypes=job.dtypes or ("float32",),
            reductions=reductions,
            implementations=(job.file,),
            inputs=Inputs((distribution,), 2.0 if distribution == "normal" else 1.0, self.seed),
        )


_FATAL = (
    *("process_died", "timeout", "forged", "flooded_output", "memory_limit", "broke_device"),
    *("patched",),
)
"""Codes after which nothing more is asked."""


@cache
def _runner(device: str) -> Runner:
    """Return the runner of quick timings, which measures the limits of the memory once."""
    return Runner(device)


def _setting(job: Job) -> remote.Setting:
    """Return what the workers of a job may take."""
    limits = job.limits
    allowance = Allowance(
        limits.build_seconds, limits.call_seconds, limits.memory_bytes, limits.output_bytes
    )
    return remote.Setting(allowance, tuple(job.arguments))


def _by_reference(job: Job, file: UserFile, device: str, found: Findings) -> Job:
    """Return the job with the loss, reduction and size of its reference.

    Raises:
        UnknownLossError: the reference computes something else.
    """
    try:
        known = recognise(job.reference or str(file.path), device)
    except UnknownLossError:
        raise
    except WrongReferenceError as error:
        found.reasons.append(JudgeReason("bad_reference", "parse", str(error)))
        raise Ended from None
    sizes = job.sizes or ((known.size,) if known.size else ())
    reduction = job.reduction or known.reduction
    return msgspec.structs.replace(job, loss=known.loss, reduction=reduction, sizes=sizes)


def _check_arguments(
    file: UserFile, definition: Definition, loss: str, given: tuple[str, ...]
) -> None:
    """Raise NotJudgeableError if not all operands of a loss can be given."""
    spec = EVERY_LOSS[loss]
    if misfit := file.misfit(definition, spec, given):
        text = f"{misfit}. The operands of {loss} are {', '.join(spec.names)}"
        raise NotJudgeableError("signature", text)


def _forms(loss: str, definition: Definition) -> list[str]:
    """Return the forms of a loss with more operands, which a definition names: a weight, a mask."""
    spec = EVERY_LOSS[loss]
    named = definition.signature.keywords
    return [
        name
        for name, form in ROW_FORMS.items()
        if form.function_name == spec.function_name
        and len(form.names) > len(spec.names)
        and all(operand in form.operands for operand in spec.operands)
        and {*form.names} - {*spec.names} <= named
    ]


def _loss_of(file: UserFile) -> str:
    """Return the loss that a file defines by its name, in the form with the fewest operands."""
    named: dict[str, list[str]] = {}
    for loss, spec in EVERY_LOSS.items():
        name = spec.function_name
        if file.name == name or (not file.name and file.defines(name)):
            named.setdefault(name, []).append(loss)
    found = [_form_of(file, losses) for losses in named.values()]
    if len(found) == 1:
        return found[0]
    losses = ", ".join(sorted(EVERY_LOSS))
    if found:
        text = f"{file.named} defines several losses: {', '.join(found)}. Choose one with --loss"
        raise NotJudgeableError("ambiguous", text)
    text = f"{file.named} does not say which loss it is. Choose one with --loss: {losses}"
    raise NotJudgeableError("nothing_to_judge", f"{text}; or name a file with a class Model")


def _form_of(file: UserFile, losses: list[str]) -> str:
    """Return which of the forms of one function a file defines: the first that fits."""
    losses = sorted(losses, key=lambda loss: len(EVERY_LOSS[loss].names))
    for loss in losses:
        with suppress(NotJudgeableError):
            _check_arguments(file, file.definition(loss), loss, ())
            return loss
    return losses[0]


def _worst(known: Accuracy, result: VerifyResult) -> Accuracy:
    """Return the largest errors so far, of results that passed."""
    if result.status == FAIL:
        return known
    own, torchs = result.error, result.reference_error

    def most(one: float | None, other: float | None) -> float | None:
        return max((each for each in (one, other) if each is not None), default=None)

    return msgspec.structs.replace(
        known,
        value_ulp=most(known.value_ulp, own.value_ulp),
        torch_value_ulp=most(known.torch_value_ulp, torchs.value_ulp),
        gradient_ulp=most(known.gradient_ulp, own.grad_ulp),
        torch_gradient_ulp=most(known.torch_gradient_ulp, torchs.grad_ulp),
    )


def worth_processes(task: Task) -> Task:
    """Return a task with one process where each of several would make gigabytes anew."""
    if math.prod(task.case.shape) < ONE_PROCESS:
        return task
    return replace(task, timing=replace(task.timing, processes=1))


def _verdict(
    job: Job, device: str, file: UserFile | None, against: str, found: Findings, log: str
) -> Verdict:
    machine = describe(device)
    return Verdict(
        id=job.id or job.file,
        file=job.file,
        word=word_of(found.reasons),
        against=against,
        device=device,
        reasons=tuple(found.reasons),
        speed=tuple(found.speed),
        accuracy=found.accuracy,
        checks=found.checks,
        trains=found.trains,
        isolation=found.isolation,
        seconds=found.seconds,
        log=log[-4000:],
        sha256=file.sha256 if file else "",
        losscli=__version__,
        torch=torch.__version__,
        machine=str(machine.get("gpu") or machine.get("cpu") or ""),
    )


__all__ = ["judge_job"]
