"""Look at a candidate's first results: what it returns, for which operands, and gradients."""

import contextlib

import torch

from losscli.cases.axes import DTYPES
from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.implementations.errors import SubjectError
from losscli.implementations.implementation import Mend
from losscli.implementations.requests import Call, Forward
from losscli.implementations.subject import Subject, bind, workers
from losscli.judge.home_ground import has_died
from losscli.judge.judgement import Ended, Judgement
from losscli.judge.loss_of_file import MISSING
from losscli.reasons import HOME, Code, Facet
from losscli.runs.records import FAIL
from losscli.truth.problem import Problem

UNMARKED = "in a process that does not look like a judge's: "
NO_GRADIENT = "its result has no gradient, so it cannot be used in training"


def compile_by_call(on: Judgement) -> None:
    """Call it once with zeros: a compiler may run in the first call.

    Later workers share what it compiles, so it must not see the operands of the checks.
    """
    case = on.against.firsts()[0]
    zeros = {name: each.zero_() for name, each in on.problem(case).operands.items()}
    with contextlib.suppress(SubjectError):  # look_at reports it
        bind(on.implementation, case).send(Forward(zeros))


def look_at(on: Judgement, case: Case) -> None:
    """Check the value, then find out about gradients; drop an optional dtype that fails."""
    problem, draft, is_right = on.problem(case), on.draft, False
    optional = case.dtype in on.against.others
    draft.dtypes |= dict.fromkeys(each for each in case.dtypes.values() if each in DTYPES)
    try:
        subject = bind(on.implementation, case)
        subject = _check_value(on, problem, subject)
        if on.implementation.setting.labels:
            problem = on.problem(case)
        if not draft.failures:
            for name, values in problem.sibling().operands.items():
                problem.operands[name].copy_(values)
            _check_value(on, problem.like(problem.operands), subject, "new contents: ")
        is_right = not draft.failures
        if draft.trains is not False:
            problem.mark()
            subject = _first_gradient(on, problem, subject)
            if name := problem.spoiled():  # by its backward
                subject, problem = _give_copies(on, case, name), on.problem(case)
            _look_at_others(on, problem, subject)
            draft.trains = on.against.trains = True
    except SubjectError as error:
        raised = error.code in (Code.RAISED, Code.DOES_NOT_BUILD)  # a call may compile
        died = has_died(error)
        in_backward = is_right and not optional and not died
        if in_backward and (raised or error.code == Code.NO_GRADIENT):
            text = f"{NO_GRADIENT}; backward {error}" if raised else NO_GRADIENT
            draft.add(Code.NO_GRADIENT, text, case=case.name)
            draft.trains = on.against.trains = False
            if not isinstance(case, ModelCase):
                on.against.candidate = on.implementation.but(lacking=case.spec.names)
            return
        instead = None if died else on.against.instead_of(case)
        if instead is None:
            lacks = raised and on.device == "cpu" and MISSING.search(str(error))
            draft.end(Code.MISSING_TOOL if lacks else error.code, str(error), case=case.name)
        code: Code = Code.UNSUPPORTED_INPUT if raised else Code.KNOWN_LIMITATION
        facet: Facet = "dtypes" if optional else "sizes"
        text = f"operands of {case.dtype}: {error}" if optional else str(error)
        draft.add_first(code, text, check="value", facet=facet, case=case.name)
        if optional:
            del draft.dtypes[case.dtype]
        else:
            # Operands of other layouts and values have other sizes than those it is right for.
            draft.home = {*HOME} - {"sizes", "layouts", "extreme_values"}
        for other in instead:
            look_at(on, other)


def look_unmarked(on: Judgement, case: Case) -> None:
    """Check that it is also right in processes that do not look like a judge's."""
    if isinstance(case, ModelCase) or on.implementation.setting.mends:
        return
    first = on.problem(case)
    problems, calls = (first, first.sibling()), []
    for problem in problems:
        wrt = problem.wrt[:1] if on.draft.trains else ()
        operands = {name: each.cpu() for name, each in problem.operands.items()}
        calls.append(Call(operands, wrt, problem.ones.cpu()))
    try:
        answers = workers.unmarked(on.implementation, calls, case)
    except SubjectError as error:
        on.draft.end(error.code, f"{UNMARKED}{error}", case=case.name)
    for problem, answer in zip(problems, answers, strict=True):
        for part, got in answer.items().items():
            own = None if got is None else got.to(on.device)
            outcome, _ = problem.judge(part, own, problem.filled(1.0))
            if outcome.status == FAIL:
                on.draft.cause = "it is right only in a process that looks like a judge's"
                text = f"{UNMARKED}{part}: {outcome.reason}"
                on.draft.end(Code.WRONG, text, check="value", case=case.name)


def _first_gradient(on: Judgement, problem: Problem, subject: Subject) -> Subject:
    """Ask for the gradient of the prediction; where that raises, for all of them from now on."""
    try:
        subject.send(problem.call(problem.filled(1.0)))
    except SubjectError as error:
        mends = on.implementation.setting.mends
        if error.code != Code.RAISED or "gradients" in mends or not _differ(problem):
            raise
        before = on.implementation
        subject = _mended(on, problem.case, "gradients")
        try:
            subject.send(problem.call(problem.filled(1.0)))
        except SubjectError:
            on.against.candidate = before
            raise error from None
        text = f"it {error} unless gradients of all operands are wanted"
        _add_limit(on, problem, problem.wrt[0], text)
    return subject


def _differ(problem: Problem) -> bool:
    return not isinstance(problem.case, ModelCase) and len(problem.wrt) > 1


def _look_at_others(on: Judgement, problem: Problem, subject: Subject) -> None:
    """Find out which gradients of other operands it lacks; PyTorch's function may lack them too."""
    if not _differ(problem):
        return
    case, setting, lacking = problem.case, on.implementation.setting, list[str]()
    mends = setting.mends
    known = {operand.name for operand in case.spec.operands if operand.torch_differentiates}
    for name in problem.wrt[1:]:
        if not _lacks(problem, subject, name, may_refuse=name not in known):
            continue
        if name not in known:
            lacking.append(name)
            continue
        first = problem.wrt[0]
        together = problem.call(problem.filled(1.0, (first, name)))
        gradient = subject.send(together).gradients[name]
        if gradient is not None and "gradients" not in mends:
            mends = (*mends, "gradients")
            where = f" where none for {first} is wanted"
        elif gradient is None and name == "target":
            lacking.append(name)
            where = ""
        else:
            continue
        _add_limit(on, problem, name, f"it computes no gradient for {name}{where}")
    if lacking or mends != setting.mends:
        lacking += setting.lacking
        on.against.candidate = on.implementation.but(mends=mends, lacking=tuple(lacking))


def _lacks(problem: Problem, subject: Subject, name: str, *, may_refuse: bool) -> bool:
    """Tell whether it computes no gradient when one operand alone wants it."""
    try:
        answer = subject.send(problem.call(problem.filled(1.0, (name,))))
    except SubjectError as error:
        if has_died(error):
            raise
        # Its checks report any other error.
        return error.code == Code.NO_GRADIENT or (error.refused and may_refuse)
    return answer.gradients[name] is None


def _mended(on: Judgement, case: Case, mend: Mend) -> Subject:
    """Mend the candidate from now on; return its subject."""
    on.against.candidate = on.implementation.but(mends=(*on.implementation.setting.mends, mend))
    return bind(on.implementation, case)


def _add_limit(on: Judgement, problem: Problem, name: str, text: str) -> None:
    check, case = f"{name}_gradient", problem.case.name
    on.draft.add_first(Code.KNOWN_LIMITATION, text, check=check, facet="gradient", case=case)


def _check_value(on: Judgement, problem: Problem, subject: Subject, where: str = "") -> Subject:
    """Record a wrong value; return the subject, which mends results that do not fit."""
    before = problem.copies()
    problem.mark()
    case, setting, draft = problem.case, on.implementation.setting, on.draft
    place: dict[str, str] = {"check": "value", "case": case.name}
    try:
        loss = subject.send(Forward(problem.operands))
    except SubjectError as error:
        several = str(error).startswith(("returned a tuple", "returned a list"))
        if not several or "results" in setting.mends:
            raise
        draft.notes.append("it returns several results: the first that fits is the loss")
        return _check_value(on, problem, _mended(on, case, "results"), where)
    if name := problem.spoiled():
        if "operands" in setting.mends:
            draft.end(Code.MODIFIED_INPUT, f"{where}modified its {name} in place", **place)
        subject = _give_copies(on, case, name)
        for each, values in before.items():
            problem.operands[each].copy_(values)
        return _check_value(on, problem, subject, where)
    verdict, errors = problem.judge_loss(loss)
    if verdict.status != FAIL:
        return subject
    if case.dtype in on.against.others:
        raise SubjectError(verdict.reason, Code.SHAPE_OR_DTYPE_MISMATCH)
    if errors is None and _can_mend(on, loss, problem):
        draft.add(Code.SHAPE_OR_DTYPE_MISMATCH, verdict.reason, facet="value", **place)
        if on.job.until_first:
            raise Ended
        return _check_value(on, problem, _mended(on, case, "results"), where)
    if _is_right_for_labels(on, case):
        text = "it is defined for labels 0 and 1; targets between them give another loss"
        draft.add(Code.KNOWN_LIMITATION, f"{text}: {verdict.reason}", facet="value", **place)
        lacking = [o.name for o in case.spec.operands[1:] if o.labels]
        lacking += setting.lacking
        on.against.candidate = on.implementation.but(labels=True, lacking=tuple(lacking))
        return bind(on.implementation, case)
    if not where and on.against.has_other_size(case):
        raise SubjectError(verdict.reason, Code.KNOWN_LIMITATION)
    draft.cases.append(case)
    draft.add(Code.WRONG, where + verdict.reason, facet="value", **place)
    # Its gradient says less, unless nothing else is known of the formula.
    if errors is None or not isinstance(case, ModelCase):
        raise Ended
    return subject


def _give_copies(on: Judgement, case: Case, name: str) -> Subject:
    """Give each call copies of the operands from now on: the candidate overwrites one."""
    text = f"it overwrites its {name}, so each call gets copies, which its times include"
    on.draft.add(Code.KNOWN_LIMITATION, text, check="value", facet="inputs", case=case.name)
    return _mended(on, case, "operands")


def _is_right_for_labels(on: Judgement, case: Case) -> bool:
    if on.implementation.setting.labels or not any(o.labels for o in case.spec.operands[1:]):
        return False
    problem = on.problem(case, labels=True)
    loss = bind(on.implementation, case).send(Forward(problem.operands))
    return problem.judge_loss(loss)[0].status != FAIL


def _can_mend(on: Judgement, loss: torch.Tensor, problem: Problem) -> bool:
    """Tell whether a loss has a shape that can be mended: a number, or one loss a unit."""
    if "results" in on.implementation.setting.mends or isinstance(problem.case, ModelCase):
        return False
    due = problem.oracle.loss_shape()
    fits = loss.shape in (due, problem.oracle.unreduced_shape) or (loss.numel() == due.numel() == 1)
    return fits and loss.is_floating_point() and loss.device == problem.prediction.device
