"""Recognise the loss that a file computes by its values, with parameters and reduction."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import torch
from msgspec import structs

from losscli.cases.axes import DTYPES, DType
from losscli.cases.case import Case
from losscli.implementations.definitions import Definition, NotJudgeableError
from losscli.implementations.errors import SandboxError, SubjectError
from losscli.implementations.implementation import Implementation
from losscli.implementations.requests import Forward
from losscli.implementations.sandbox.worker_requests import InputShapes
from losscli.implementations.source import signature_for
from losscli.implementations.subject import bind, subject_of, workers
from losscli.losses import CLASS_INDICES, ELEMENT, EVERY_LOSS, MASK, ROW, Reduction, Shape, Spec
from losscli.losses.rows.forms import IGNORE_INDEX
from losscli.reasons import Code
from losscli.truth.model import WrongReferenceError
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty

SMALL = {2: (7, 33), 3: (7, 12, 33)}
LARGEST = 2**20
"""Elements of a file's inputs up to which a loss is recognised on them."""
CLOSE = {"float64": 1e-9, "float32": 1e-4}
"""Relative distance of two results of the same formula."""


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
    named, file = found.name, found.source
    try:
        definition = file.definition("")
    except NotJudgeableError as error:
        text = str(error)
        if error.code == Code.NOTHING_TO_JUDGE and file.parsed.definitions:
            path = file.named.removesuffix(f":{file.name}")
            text += f" If one of these is the loss, judge {path}:NAME"
        raise UnknownLossError(text, text) from None
    failures: dict[str, None] = {}
    computed, nearly = False, ""
    try:
        inputs = workers.of(found, device).ask(InputShapes(), case=None)
        for case, labels in _attempts(definition, inputs, device, dtype):
            try:
                if file.misfit(file.definition(case.loss), case.spec):
                    continue
                known = _recognised(found, case, labels=labels)
                only = known and _only_at(found, case, known, labels=labels)
            except SandboxError:
                raise
            except (SubjectError, NotJudgeableError) as error:
                failures[str(error)] = None
                continue
            computed = True
            if only:
                nearly = nearly or f"{file.named} computes {case.loss} only at {only}"
            elif known:
                parameters, reduction = known
                size = inputs[0][0] if inputs else None
                floating = next((each for _, each in inputs if each in DTYPES), DTYPES[0])
                return Recognised(case.loss, reduction, size, floating, parameters)
    except SubjectError as error:
        raise WrongReferenceError(f"{named} does not run: {error}") from error
    finally:
        workers.end(file)
    if nearly:
        raise UnknownLossError(nearly, nearly)
    if failures:
        raised = ", or ".join([*failures][-2:])
        why = f"no function of {file.named} is named after a loss; a trial call {raised}"
        raise UnknownLossError(f"{named} {next(iter(failures))}", "" if computed else why)
    raise UnknownLossError(f"{named} computes none of the losses that losscli knows")


def _attempts(
    definition: Definition, inputs: Sequence[tuple[Shape, str]], device: str, dtype: DType
) -> Iterator[tuple[Case, bool]]:
    """Yield a case of each possible loss, and whether targets are labels.

    A case is a mean at the defaults: a Model takes no reduction or parameters.
    """
    own = [shape for shape, _ in inputs[:1] if math.prod(shape) <= LARGEST]
    given = sorted(dtype in DTYPES for _, dtype in inputs)
    for labels, (loss, spec) in product((False, True), EVERY_LOSS.items()):
        signature = signature_for(definition, spec)
        counts = range(signature.required, len(signature.names) + 1)
        floating = sorted(operand.kind != CLASS_INDICES for operand in spec.operands)
        fits = (signature.anything or len(floating) in counts) and given in ([], floating)
        masked = any(operand.kind == MASK for operand in spec.operands)
        if not fits or masked or (labels and not any(o.labels for o in spec.operands)):
            continue
        mean = spec.reductions[-2:][0]
        how = dtype, mean, device, spec.resolve({})
        for shape in (SMALL[2 if spec.unit in (ELEMENT, ROW) else 3], *own):
            targets = [spec.default_target_shape(shape), *([shape] if spec.unit == ELEMENT else [])]
            for target in dict.fromkeys(targets):
                yield Case(loss, shape, target, *how, "normal", 11, 2.0), labels


def _recognised(
    found: Implementation, first: Case, *, labels: bool
) -> tuple[dict[str, float], Reduction] | None:
    """Return the parameters and the reduction with which a file computes a loss, or None."""
    spec, dtype = first.spec, first.dtype
    problem = Problem.of(first, third_party=ThirdParty(labels=labels))
    subject = bind(found, first)
    answer = subject.send(Forward(problem.copies()))
    for given, reduction in product(settings(spec, found.source.parsed.numbers), spec.reductions):
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


def settings(spec: Spec, numbers: Sequence[float]) -> list[dict[str, float]]:
    """Return the parameters that a file with these numbers may have, the defaults first."""
    # With 0, 1 or -1 a parameter leaves a term out, or leaves it as it is.
    values = dict.fromkeys((*numbers[:8], 0.0, 1.0, -1.0))
    options = [
        [(each.name, n) for n in values if n != each.default and not each.check(n)]
        for each in spec.parameters
        if each != IGNORE_INDEX  # the operands depend on it
    ]
    singles = [dict([one]) for own in options for one in own]
    pairs = [dict(pair) for one, other in combinations(options, 2) for pair in product(one, other)]
    return [{}, *singles, *pairs][:80]


def _only_at(
    found: Implementation, first: Case, known: tuple[dict[str, float], Reduction], *, labels: bool
) -> str:
    """Return a parameter at whose default alone a file computes a loss; empty if there is none."""
    given, reduction = known
    definition = found.source.definition(first.loss)
    is_made = found.source.defines("get_init_inputs")  # with these parameters, whatever a case has
    takes = definition.signature.takes if is_made else definition.takes
    for each in first.spec.parameters:
        unchanged = each.name in given or each == IGNORE_INDEX or each.is_unusual(each.example)
        if unchanged or not takes(each.name):
            continue
        params = first.spec.resolve({**given, each.name: each.example})
        case = structs.replace(first, reduction=reduction, params=params)
        operands = Problem.of(case, third_party=ThirdParty(labels=labels)).operands
        try:
            answer = bind(found, case).send(Forward(operands))
        except SandboxError:
            raise
        except SubjectError:
            continue
        if not _close(answer, subject_of("reference", case).send(Forward(operands)), first.dtype):
            return f"{each.name}={each.default:g}"
    return ""


def _close(one: torch.Tensor | None, other: torch.Tensor | None, dtype: DType) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= CLOSE[dtype] * other.abs().max().clamp(min=1e-300))
