"""Find the loss that a file is judged as: the job's, or by the file's names, or by its values."""

import re
from contextlib import suppress
from dataclasses import replace

import torch
from msgspec import structs

from losscli.build.diagnosis import placed_error
from losscli.implementations.builtin import of_file
from losscli.implementations.definitions import Definition, NotJudgeableError
from losscli.implementations.errors import NotBuiltError, SandboxError, SubjectError
from losscli.implementations.implementation import Implementation, Setting
from losscli.implementations.source import REFERENCE_MODULE, Source
from losscli.implementations.subject import workers
from losscli.judge.job import Job
from losscli.judge.recognition import UnknownLossError, recognise
from losscli.losses import EVERY_LOSS
from losscli.reasons import Code
from losscli.truth.model import WrongReferenceError

MISSING = re.compile(
    "CUDA_HOME|nvcc|not compiled with CUDA|no NVIDIA driver|Ninja is required|dummy base class"
    "|No module named '(triton|tilelang|helion|cutlass|cupy|numba)"
)
"""Errors where a machine lacks a compiler, a GPU or a language."""


def check_arguments(
    file: Source, definition: Definition, loss: str, given: tuple[str, ...]
) -> None:
    """Raise NotJudgeableError if not all operands of a loss can be given."""
    spec = EVERY_LOSS[loss]
    if misfit := file.misfit(definition, spec, given):
        text = f"{misfit}. The operands of {loss} are {', '.join(spec.names)}"
        raise NotJudgeableError(Code.SIGNATURE, text)


def loss_of(file: Source, *, by_module: bool = False) -> str:
    """Return the loss that a file defines by name, in the form with the fewest operands."""
    named: dict[str, list[str]] = {}
    for loss, spec in EVERY_LOSS.items():
        names = dict.fromkeys((*spec.function_names, spec.name))
        if by_module:
            module = spec.module.__name__
            names = {module: None} if hasattr(torch.nn, module) else {}
        for name in names:
            if file.name == name or (not file.name and file.defines(name)):
                named.setdefault(name, []).append(loss)
    found = [_form_of(file, losses) for losses in named.values()]
    if len(found) == 1:
        return found[0]
    if found:
        text = f"{file.named} defines several losses: {', '.join(found)}. Choose one with --loss"
        raise NotJudgeableError(Code.AMBIGUOUS, text)
    text = f"{file.named} has no function with the name of a loss, and its values match no loss"
    raise NotJudgeableError(Code.UNKNOWN_LOSS, text)


def _form_of(file: Source, losses: list[str]) -> str:
    losses = sorted(losses, key=lambda loss: len(EVERY_LOSS[loss].names))
    for loss in losses:
        with suppress(NotJudgeableError):
            check_arguments(file, file.definition(loss), loss, ())
            return loss
    return losses[0]


def forms(loss: str, definition: Definition) -> list[str]:
    """Return the forms of a loss whose further operands (weight, mask) a definition names."""
    spec = EVERY_LOSS[loss]
    named = definition.signature.keywords
    return [
        name
        for name, form in EVERY_LOSS.items()
        if spec.function_name in form.function_names
        and len(form.names) > len(spec.names)
        and all(operand in form.operands for operand in spec.operands)
        and {*form.names} - {*spec.names} <= named
    ]


def recognised(
    job: Job, file: Source, device: str, notes: list[str]
) -> tuple[Job, Source, Source | None, Implementation | None]:
    """Return the job with its loss, the file, the reference Model, and what is timed as it.

    The Model is returned where it computes no known loss.
    """
    file = file.having(job.reduction, {})
    if job.loss:
        return job, _only_fitting(file, job), None, None
    reference: Source | None = None
    if job.reference or (file.defines(REFERENCE_MODULE) and file.name != REFERENCE_MODULE):
        given = Source.read(job.reference) if job.reference else replace(file, named=str(file.path))
        reference = given.of_module(REFERENCE_MODULE)
        _ = reference.parsed
        found = of_file(reference, Setting(require_isolation=job.require_isolation))
    else:
        try:
            return structs.replace(job, loss=loss_of(file)), file, None, None
        except NotJudgeableError as error:
            if error.code != Code.UNKNOWN_LOSS:
                raise
            unknown = error
        file = file.of_only_definition()
        found = of_file(file, Setting(job.limits, job.arguments, job.require_isolation))
        try:
            workers.of(found, device)
        except SubjectError as error:
            raise NotJudgeableError(*why_not_imported(error, file)) from None
    try:
        known = recognise(found, *(("cpu",) if reference else (device, "float32")))
    except UnknownLossError as error:
        if reference:
            return job, file, reference, None
        # By its name only now: with its own settings, a module may compute another loss.
        with suppress(NotJudgeableError):
            return structs.replace(job, loss=loss_of(file, by_module=True)), file, None, None
        if not error.why:
            raise unknown from None
        lacks = device == "cpu" and MISSING.search(error.why)
        code = Code.MISSING_TOOL if lacks else Code.UNKNOWN_LOSS
        raise NotJudgeableError(code, error.why) from None
    except WrongReferenceError as error:
        if reference is None and isinstance(error.__cause__, SubjectError):
            raise NotJudgeableError(*why_not_imported(error.__cause__, file)) from None
        raise
    notes.append(f"computes {known}")
    reduction = job.reduction or known.reduction
    job = structs.replace(
        job,
        loss=known.loss,
        reduction=reduction,
        sizes=job.sizes or ((known.size,) if known.size else ()),
        dtypes=job.dtypes or ((known.dtype,) if known.dtype != "float32" else ()),
        parameters={**known.parameters, **job.parameters},
    )
    timed = of_file(reference.having(reduction, known.parameters)) if reference else None
    return job, file.having(reduction, known.parameters), None, timed


def _only_fitting(file: Source, job: Job) -> Source:
    """Return the file with its only definition, whatever its name, if that takes the operands."""
    only = file.of_only_definition()
    with suppress(NotJudgeableError):
        if not only.misfit(only.definition(job.loss), EVERY_LOSS[job.loss], job.arguments):
            return only
    return file


def why_not_imported(error: SubjectError, file: Source) -> tuple[Code, str]:
    """Return why a file cannot be imported: a compiler's first error, where one failed."""
    text = str(error)
    code: Code = error.code if isinstance(error, SandboxError) else Code.CONSTRUCTOR_FAILED
    if isinstance(error, NotBuiltError) and not error.compiler:
        code = Code.IMPORT_FAILED
    elif isinstance(error, NotBuiltError):
        workers.end(file)
        text = placed_error(workers.logs.get(file, ""), file.text, file.path.name) or text
    return (Code.MISSING_TOOL if MISSING.search(text) else code), text
