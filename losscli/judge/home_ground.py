"""Settle the home ground of a candidate: the shapes of its operands, and its reduction."""

import contextlib
from inspect import signature

import msgspec
import torch

from losscli.cases.case import Case
from losscli.implementations.builtin import of_file
from losscli.implementations.errors import NotBuiltError, SandboxError, SubjectError
from losscli.implementations.process_state import reason_of
from losscli.implementations.requests import Forward
from losscli.implementations.subject import bind, changes_of, workers
from losscli.judge.against_model import AnyModel
from losscli.judge.judgement import Judgement
from losscli.losses import EVERY_LOSS
from losscli.reasons import Code, Reason
from losscli.runs.records import FAIL
from losscli.units import format_size


def settle_shapes(on: Judgement) -> None:
    """Judge a candidate that is right only with a target of the input's shape on such targets.

    Where the target broadcasts it must raise, crash or read beyond it; all else is a mistake.
    """
    against = on.against
    if isinstance(against, AnyModel) or not (case := against.firsts()[0]).target_broadcasts:
        return
    right, error = _try(on, case)
    if right == 2:
        return
    before, whole = on.implementation, right
    # A kernel that is not written for a target of another shape fails so.
    refused = error.code in (Code.RAISED, Code.PROCESS_DIED, Code.DEVICE_ERROR)
    if refused or (error.code == Code.WRONG and _reads_beyond(on, case)):
        end_if_changed(on)
        workers.renew(on.file)  # it may have written beyond the end of a tensor
        against.candidate = before.but(whole_targets=True)
        with contextlib.suppress(SubjectError):
            bind(on.implementation, against.firsts()[0])
            end_if_changed(on)  # by a second import
        whole, _ = _try(on, against.firsts()[0])
    if whole <= right:
        against.candidate = before
        if has_died(error):  # it may do so only once
            note_call(on, case)
            on.draft.end(error.code, str(error), case=case.name)
        return  # the first look says what is wrong
    shape = format_size(case.target_shape)
    text = f"its target must have the input's shape; with shape {shape}: {error}"
    code = {Code.RAISED: Code.UNSUPPORTED_INPUT}.get(error.code, Code.KNOWN_LIMITATION)
    on.draft.add(code, text, check="broadcasts", facet="layouts", case=case.name)
    settle_reduction(on)


def _try(on: Judgement, case: Case) -> tuple[int, SubjectError]:
    """Call it once, whatever it overwrites and whichever shape its result has.

    Return how much is right (0 nothing, 1 the loss, 2 its gradients too) and what is wrong.
    """
    problem, right = on.problem(case), 0
    try:
        subject = bind(on.implementation.but(mends=("results", "operands")), case)
        loss = problem.judge_loss(subject.send(Forward(problem.operands)))[0]
        if loss.status == FAIL:
            raise SubjectError(loss.reason, Code.WRONG)
        right, ones = 1, problem.filled(1.0)
        for part, got in subject.send(problem.call(ones)).items().items():
            outcome, _ = problem.judge(part, got, ones)
            if outcome.status == FAIL:
                raise SubjectError(f"{part}: {outcome.reason}", Code.WRONG)
    except SubjectError as error:
        return right, error
    return 2, SubjectError("")


def end_if_changed(on: Judgement) -> Reason | None:
    """Return what the file has changed globally since the last query; end unless that is mild."""
    if not (changed := changes_of(on.file)):
        return None
    reason = reason_of(changed)
    if not all(change.mild for change in changed):
        on.draft.end(reason.code, reason.text)
    return reason


def has_died(error: SubjectError) -> bool:
    """Tell whether the worker has ended; a failed compiler leaves it running."""
    return isinstance(error, SandboxError) and not isinstance(error, NotBuiltError)


def note_call(on: Judgement, case: Case) -> None:
    """Note how it is called: with several shapes, with other values than its own defaults."""
    if isinstance(on.against, AnyModel):
        return
    if len({*case.shapes.values()}) > 1:
        shapes = (f"{name} {format_size(shape)}" for name, shape in case.shapes.items())
        on.draft.notes.append(f"it is called with {', '.join(shapes)}")
    spec, definition = case.spec, on.against.definition
    usual = {name: value.default for name, value in signature(spec.loss).parameters.items()}
    for name, value in (definition.constructor or definition.signature).defaults.items():
        is_setting = name == "reduction" or any(each.name == name for each in spec.parameters)
        if is_setting and value is not None and value != usual.get(name, value):
            text = f"its own default of {name} is {value}, not {usual[name]} as in {case.loss}"
            on.draft.notes.append(text)
    forms = (form for form in EVERY_LOSS.values() if spec.function_name in form.function_names)
    optional = {name for form in forms for name in form.names} - {*spec.names}
    if definition.constructor and (given := optional & definition.constructor.keywords):
        on.draft.notes.append(f"not tested: {', '.join(sorted(given))} of its constructor")


def _reads_beyond(on: Judgement, case: Case) -> bool:
    """Tell whether its loss depends on what follows the target in memory, and on nothing else."""
    problem, name, losses = on.problem(case), case.spec.names[1], []
    target = problem.operands[name]
    try:
        subject = bind(on.implementation.but(mends=("results",)), case)
        for beyond in (-1.0, 1.0, -1.0):
            longer = target.new_full(problem.prediction.shape, beyond).flatten()
            longer[: target.numel()] = target.flatten()
            view = longer[: target.numel()].view(target.shape)
            losses.append(subject.send(Forward({**problem.operands, name: view})).nan_to_num())
    except SubjectError:
        return False
    first, other, again = losses  # without NaN, which is not equal to itself
    return torch.equal(first, again) and not torch.equal(first, other)


def settle_reduction(on: Judgement) -> None:
    """Judge a candidate that takes no reduction and returns one loss a unit with reduction none."""
    against, job = on.against, on.job
    if isinstance(against, AnyModel) or job.reduction or against.definition.takes("reduction"):
        return
    case = against.firsts()[0]
    if case.reduction == "none" or "none" not in EVERY_LOSS[against.loss].reductions:
        return
    problem = on.problem(case)
    with contextlib.suppress(SubjectError):
        loss = bind(on.implementation, case).send(Forward(problem.operands))
        if loss.shape == problem.oracle.unreduced_shape != problem.oracle.loss_shape():
            on.draft.notes.append("it takes no reduction and returns one for each: none")
            against.job = on.job = msgspec.structs.replace(job, reduction="none")
            own = on.file.having("none", on.file.parameters)
            against.candidate = of_file(own, on.implementation.setting)
