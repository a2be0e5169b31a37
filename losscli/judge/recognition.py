"""Find out which loss a file computes: by its name, or by value, with parameters and reduction.

The file runs in a worker on small inputs. If its value and gradients are those of a loss of
losscli, that loss's oracle judges it. The numbers in the file are tried as parameters.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product

import torch
from msgspec import structs

from losscli.build.diagnosis import placed_error
from losscli.cases.axes import DTYPES, DType
from losscli.cases.case import Case
from losscli.implementations import remote
from losscli.implementations.builtin import of_file
from losscli.implementations.definitions import Definition, NotJudgeableError, Signature
from losscli.implementations.errors import NotBuiltError, SandboxError, SubjectError
from losscli.implementations.implementation import Implementation, Setting
from losscli.implementations.requests import Forward
from losscli.implementations.sandbox.worker_requests import InputShapes
from losscli.implementations.source import REFERENCE_MODULE, Source
from losscli.implementations.subject import bind, subject_of
from losscli.judge.job import Job
from losscli.judge.settings import settings
from losscli.losses import (
    CLASS_INDICES,
    ELEMENT,
    EVERY_LOSS,
    HIDDEN_STATE,
    MASK,
    Reduction,
    Shape,
    Spec,
)
from losscli.reasons import Code
from losscli.truth.model import WrongReferenceError
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty

SMALL = {2: (7, 33), 3: (7, 12, 33)}
LARGEST = 2**20
"""Elements of a file's inputs up to which a loss is recognised on them."""
CLOSE = {"float64": 1e-9, "float32": 1e-4}
"""Relative distance of two results of the same formula."""
MOST_ERRORS = 2


MISSING = re.compile(
    "CUDA_HOME|nvcc|not compiled with CUDA|no NVIDIA driver|Ninja is required|dummy base class"
    "|No module named '(triton|tilelang|helion|cutlass|cupy|numba)"
)
"""Errors where a machine lacks a compiler, a GPU or a language."""


@dataclass(frozen=True)
class Recognised:
    """The loss that a file computes, and where."""

    loss: str
    reduction: Reduction
    size: Shape | None
    """The shape of the input of ``get_inputs``, or None."""
    dtype: DType
    """The dtype of the first floating input, or float32."""
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Those that differ from the loss's defaults."""

    def __str__(self) -> str:
        parameters = [f"{name}={value:g}" for name, value in self.parameters.items()]
        return ", ".join([self.loss, *parameters, self.reduction])


class UnknownLossError(WrongReferenceError):
    """A file computes no loss that losscli knows, or takes other arguments."""

    def __init__(self, message: str, why: str = "") -> None:
        """``why``: why it gave no value for the operands of any loss; empty if it gave one."""
        super().__init__(message)
        self.why = why


def recognise(found: Implementation, device: str, dtype: DType = "float64") -> Recognised:
    """Return the loss of a ``Model`` or candidate; UnknownLossError or WrongReferenceError."""
    named, file = found.name, found.file
    assert file
    try:
        signature = file.definition("").signature
    except NotJudgeableError as error:
        text = str(error)
        if error.code == Code.NOTHING_TO_JUDGE and file.parsed.definitions:
            path = file.named.removesuffix(f":{file.name}")
            text += f" If one of these is the loss, judge {path}:NAME"
        raise UnknownLossError(text, text) from None
    failures: dict[str, None] = {}
    computed = False
    try:
        inputs = remote.workers.of(found, device).ask(InputShapes(), case=None)
        for loss, spec, shape, target, labels in _attempts(signature, inputs):
            try:
                if file.misfit(file.definition(loss), spec):
                    continue
                params = spec.resolve({})
                # Bound once, as a mean at the defaults: a Model takes no reduction or parameters.
                mean = spec.reductions[-2:][0]
                case = Case(loss, shape, target, dtype, mean, device, params, "normal", 11, 2.0)
                known = _recognised(found, spec, case, labels=labels)
            except SandboxError:
                raise
            except (SubjectError, NotJudgeableError) as error:
                failures[str(error)] = None
                continue
            computed = True
            if known:
                parameters, reduction = known
                size = inputs[0][0] if inputs else None
                floating = next((each for _, each in inputs if each in DTYPES), DTYPES[0])
                return Recognised(loss, reduction, size, floating, parameters)
    except SubjectError as error:
        raise WrongReferenceError(f"{named} does not run: {error}") from error
    finally:
        remote.workers.end(file)
    if failures:
        raised = ", or ".join([*failures][-MOST_ERRORS:])
        why = f"no function of {file.named} is named after a loss; a trial call {raised}"
        raise UnknownLossError(f"{named} {next(iter(failures))}", "" if computed else why)
    raise UnknownLossError(f"{named} computes none of the losses that losscli knows")


def _attempts(
    signature: Signature, inputs: Sequence[tuple[Shape, str]]
) -> Iterator[tuple[str, Spec, Shape, Shape, bool]]:
    """Yield each possible loss, the shapes of input and target, and whether targets are labels.

    A target that broadcasts is also tried in the input's shape.
    """
    own = [shape for shape, _ in inputs[:1] if math.prod(shape) <= LARGEST]
    counts = range(signature.required, len(signature.names) + 1)
    given = sorted(dtype in DTYPES for _, dtype in inputs)
    for labels, (loss, spec) in product((False, True), EVERY_LOSS.items()):
        floating = sorted(operand.kind != CLASS_INDICES for operand in spec.operands)
        fits = (signature.anything or len(floating) in counts) and given in ([], floating)
        masked = any(operand.kind == MASK for operand in spec.operands)
        if not fits or masked or (labels and not any(o.labels for o in spec.operands)):
            continue
        for shape in (SMALL[3 if spec.unit == HIDDEN_STATE else 2], *own):
            targets = [spec.default_target_shape(shape), *([shape] if spec.unit == ELEMENT else [])]
            for target in dict.fromkeys(targets):
                yield loss, spec, shape, target, labels


def _recognised(
    found: Implementation, spec: Spec, first: Case, *, labels: bool
) -> tuple[dict[str, float], Reduction] | None:
    """Return the parameters and the reduction with which a file computes a loss, or None."""
    assert found.file
    dtype = first.dtype
    problem = Problem.of(first, third_party=ThirdParty(labels=labels))
    subject = bind(found, first)
    answer = subject.send(Forward(problem.copies()))
    for given, reduction in product(settings(spec, found.file.parsed.numbers), spec.reductions):
        case = structs.replace(first, reduction=reduction, params=spec.resolve(given))
        own = problem.like(problem.operands, case)
        truth = subject_of("reference", case)
        if not _close(answer, truth.send(Forward(own.operands)), dtype):
            continue
        incoming = own.usual
        try:
            got, due = (
                each.send(own.call(incoming, own.copies())).gradients for each in (subject, truth)
            )
        except SandboxError:
            raise
        except SubjectError:  # it has no gradient
            return given, reduction
        wrt = incoming.wrt[:1] if dtype != "float64" else incoming.wrt
        if all(_close(got[name], due[name], dtype) for name in wrt):
            return given, reduction
    return None


def _close(one: torch.Tensor | None, other: torch.Tensor | None, dtype: DType) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= CLOSE[dtype] * other.abs().max().clamp(min=1e-300))


def check_arguments(
    file: Source, definition: Definition, loss: str, given: tuple[str, ...]
) -> None:
    """Raise NotJudgeableError if not all operands of a loss can be given."""
    spec = EVERY_LOSS[loss]
    if misfit := file.misfit(definition, spec, given):
        text = f"{misfit}. The operands of {loss} are {', '.join(spec.names)}"
        raise NotJudgeableError(Code.SIGNATURE, text)


def loss_of(file: Source, *, by_module: bool = False) -> str:
    """Return the loss that a file defines by name, in the form with the fewest operands.

    The name is a function's, or with ``by_module`` that of PyTorch's module.
    """
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

    The Model is returned where it computes no known loss. NotJudgeableError: the loss is unknown,
    or the file cannot be imported.
    """
    file = file.having(job.reduction, {})
    if job.loss:
        return job, file, None, None
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
            remote.workers.of(found, device)
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
        raise NotJudgeableError(Code.UNKNOWN_LOSS, error.why) from None
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


def why_not_imported(error: SubjectError, file: Source) -> tuple[Code, str]:
    """Return why a file cannot be imported: a compiler's first error, where one failed."""
    text, code = str(error), Code.CONSTRUCTOR_FAILED
    if isinstance(error, SandboxError):
        code = error.code
    if isinstance(error, NotBuiltError) and not error.compiler:
        code = Code.IMPORT_FAILED
    elif isinstance(error, NotBuiltError):
        remote.workers.end(file)
        text = placed_error(remote.workers.logs.get(file, ""), file.text, file.path.name) or text
    return (Code.MISSING_TOOL if MISSING.search(text) else code), text
