"""Judge one job: recognise its loss, run its stages, return its verdict."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from losscli import __version__
from losscli.implementations import remote
from losscli.implementations.builtin import of_file
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.errors import NotIsolatedError, SubjectError
from losscli.implementations.implementation import Implementation, Setting
from losscli.implementations.sandbox.isolation_parts import missing
from losscli.implementations.source import REFERENCE_MODULE, Source
from losscli.judge.against_loss import KnownLoss
from losscli.judge.against_model import AnyModel
from losscli.judge.canary import Canary
from losscli.judge.job import Job
from losscli.judge.judgement import Against, Draft, Ended
from losscli.judge.recognition import UnknownLossError, loss_of, recognise
from losscli.judge.stages import Judging, why_not_imported
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_parts import word_of
from losscli.machine import devices
from losscli.machine.description import describe
from losscli.reasons import Code
from losscli.truth.model import WrongReferenceError

LOG_CHARACTERS = 4000


def judge_job(job: Job, *, notify: Callable[[str], None] = lambda note: None) -> Verdict:
    """Return the verdict of a job; UsageError if there is no such file, loss or device."""
    device = devices.resolve_device(job.device)
    draft, named, log = Draft(call=job.call), job.loss, ""
    file: Source | None = None
    judging: Judging | None = None
    canary = Canary.of(device, job.limits.call_seconds)
    try:
        if trouble := canary.trouble():
            draft.end(Code.DEVICE_UNHEALTHY, trouble)
        with draft.stage("parse"):
            file = Source.read(job.file).called(job.call)
            draft.languages = file.languages
            job, file, model, timed = _recognised(job, file, device, draft.notes)
            named = (job.reference or REFERENCE_MODULE) if model else job.loss
            setting = Setting(job.limits, job.arguments, job.require_isolation)
            candidate, seed = of_file(file, setting), int.from_bytes(os.urandom(3))
            against: Against
            if model:
                against = AnyModel(job, device, candidate, of_file(model, setting), seed)
            else:
                against = KnownLoss(job, device, candidate, named, seed, timed)
        judging = Judging(job, device, file, against, draft, notify)
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
        draft.add(Code.INSUFFICIENT_MEMORY, str(error).partition("\n")[0])
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
        log=log[-LOG_CHARACTERS:],
        sha256=file.sha256 if file else "",
        losscli=__version__,
        torch=torch.__version__,
        machine=str(machine.get("gpu") or machine.get("cpu") or ""),
        host=f"{machine.get('cpu') or 'unknown CPU'}, {machine.get('cpu_cores')} cores",
    )


def _recognised(
    job: Job, file: Source, device: str, notes: list[str]
) -> tuple[Job, Source, Source | None, Implementation | None]:
    """Return the job with its loss, the file, the reference Model, and what is timed as it.

    A loss that is not named is recognised from the reference, or from the file itself, with its
    parameters, reduction, size and dtype. A Model is returned where it computes another loss.
    NotJudgeableError: the loss is unknown, or the file cannot be imported.
    """
    file = file.having(job.reduction, {})
    if job.loss:
        return job, file, None, None
    setting = Setting(job.limits, job.arguments, job.require_isolation)
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
        file = file.of_only_function()
        found = of_file(file, setting)
        try:
            remote.workers.of(found, device)
        except SubjectError as error:
            raise NotJudgeableError(*why_not_imported(error, file)) from None
    try:
        known = recognise(found, *(("cpu",) if reference else (device, "float32")))
    except UnknownLossError as error:
        if reference is None and error.raised:
            text = f"no function of {file.named} is named after a loss; a trial call {error.raised}"
            text += "" if file.name else f" If one of these is meant, judge {file.named}:NAME."
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
