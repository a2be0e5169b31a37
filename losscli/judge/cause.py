"""Find out why a result is wrong: a known mistake, or the right result times a number."""

import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject, bind, subject_of
from losscli.judge.difference import FEWEST, difference_of, is_close
from losscli.judge.recognition import settings
from losscli.runs.records import FAIL
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from losscli.units import format_size

CALLS = 4
SAME_SUM = 2e-6
"""Relative distance of two float32 sums of the same numbers."""
MISTAKES: Mapping[str, str] = tomllib.loads(
    files("losscli.judge").joinpath("mistakes.toml").read_text(encoding="utf-8")
)


def cause_of(problem: Problem, candidate: Implementation) -> str:
    """Return why a candidate is wrong in a case; empty if unknown."""
    unreduced = replace(problem.case, reduction="none")
    problems = [problem]
    if "none" in problem.case.spec.reductions and not candidate.unavailable(unreduced):
        problems.append(problem.like(problem.operands, unreduced))  # tells more, where it applies
    if of_labels := tuple(o.name for o in problem.case.spec.operands if o.labels):
        at_labels = ThirdParty(labels=True, lacking=of_labels)
        problems.append(Problem.of(problem.case, third_party=at_labels))
    for each in problems:
        with suppress(Exception):  # an explanation must never cost the verdict
            subject, draws = bind(candidate, each.case), [each, each.sibling()]
            if found := _of_shape(each, subject) or _of_calls(each, subject):
                return found
            answers = [_answer(subject, own) for own in draws]
            found = (
                _mistake(draws, answers)
                or _of_incoming(each, answers[0])
                or difference_of(each, answers[0])
                or _of_parameters(draws, answers, candidate)
                or _of_part(draws, answers)
                or _of_setting(each, candidate)
            )
            if found:
                return found
    return ""


def _answer(subject: Subject, problem: Problem) -> Answer:
    """Request the loss and all gradients of copies, which the candidate may overwrite."""
    return subject.send(problem.call(problem.usual, problem.copies()))


def _of_part(draws: list[Problem], answers: list[Answer]) -> str:
    fits: Tensor | None = None
    for problem, answer in zip(draws, answers, strict=True):
        case, got = problem.case, answer.loss.detach().double()
        if case.reduction == "none" or "none" not in case.spec.reductions or got.numel() != 1:
            return ""
        unreduced = problem.like(problem.operands, replace(case, reduction="none"))
        losses = torch.cat([truth.value.flatten() for truth in unreduced.value()])
        (truth,), count = problem.value(), len(losses)
        if count < FEWEST:
            return ""
        sums = losses.cumsum(0)
        scale = truth.value.reshape(()) / sums[-1]  # 1, or one over a mean's divisor
        of_first = sums * scale
        own_mean = of_first * count / torch.arange(1, count + 1).to(sums)
        own_mean[count // 2 :] = torch.nan  # too many are close to the whole mean
        same = min(SAME_SUM, 0.1 / count) * got.abs()
        found = ((of_first - got).abs() <= same) | ((own_mean - got).abs() <= same)
        fits = found if fits is None else fits & found
    if fits is None or bool(fits[-1]) or int(fits.sum()) != 1:
        return ""
    first = int(fits.nonzero()[0]) + 1
    left = len(fits) - first
    if left < first:
        return f"it leaves out the last {left} of {len(fits)} losses"
    return f"its {draws[0].case.reduction} covers only the first {first} of {len(fits)} losses"


def _of_parameters(draws: list[Problem], answers: list[Answer], candidate: Implementation) -> str:
    case = draws[0].case
    numbers = candidate.file.parsed.numbers if candidate.file else ()
    if all(map(_are_right, draws, answers)):  # something else is wrong
        return ""
    for given in settings(case.spec, numbers)[1:]:
        other = replace(case, params={**case.params, **given})
        problems = [each.like(each.operands, other) for each in draws]
        if all(map(_are_right, problems, answers)):
            told = [f"--param {name}={value:g}" for name, value in given.items()]
            return f"it uses other parameters: it is right with {' '.join(told)}"
    return ""


def _of_setting(problem: Problem, candidate: Implementation) -> str:
    case = problem.case
    if _is_right(problem, case, candidate):  # something else is wrong
        return ""
    usual = {each.name: each.default for each in case.spec.parameters}
    told = [f"{name}={value:g}" for name, value in case.params.items() if value != usual[name]]
    if told and _is_right(problem, replace(case, params=usual), candidate):
        return f"it is right with the default parameters, and wrong with {', '.join(told)}"
    small = tuple(map(min, case.shape, (7, 9)))  # errors that depend on the size do not show
    grows = len(case.shape) == 2 and case.elements > 4096
    if grows and _is_right(problem, case.reshaped(small), candidate):
        return f"it is right at {format_size(small)} and wrong at {format_size(case.shape)}"
    return ""


def _is_right(problem: Problem, case: Case, candidate: Implementation) -> bool:
    if candidate.unavailable(case):
        return False
    other = Problem.of(case, third_party=problem.third_party)
    return _are_right(other, _answer(bind(candidate, case), other))


def _are_right(problem: Problem, answer: Answer) -> bool:
    outcomes = (problem.judge(part, got, problem.usual)[0] for part, got in answer.items().items())
    return all(outcome.status != FAIL for outcome in outcomes)


def _of_shape(problem: Problem, subject: Subject) -> str:
    loss, shape = subject.send(Forward(problem.operands)), tuple(problem.prediction.shape)
    if problem.case.reduction == "none" or len(shape) != 2 or not loss.dim():
        return ""
    rows, columns = shape
    along = {columns: "rows", rows: "columns"}.get(loss.numel(), "")
    return f"its {problem.case.reduction} is only over the {along}" if along else ""


def _of_calls(problem: Problem, subject: Subject) -> str:
    losses = [_answer(subject, problem).loss.detach().double() for _ in range(CALLS)]
    losses += [subject.send(Forward(problem.copies())).double() for _ in range(CALLS)]
    kinds = torch.stack(losses).nan_to_num().split(CALLS)
    for own in kinds:
        low, high = own.aminmax(dim=0)
        scale = high.abs().max().clamp(min=torch.finfo(high.dtype).tiny)
        if float(((high - low).abs().max() / scale).nan_to_num(nan=math.inf)) > SAME_SUM:
            return "calls with the same operands give different results"
    if not is_close(losses[-1], losses[0]):
        wrong = problem.judge_loss(losses[0].to(problem.oracle.dtype))[0].status == FAIL
        return f"its loss is wrong only {'with' if wrong else 'without'} a gradient"
    return ""


def _of_incoming(problem: Problem, answer: Answer) -> str:
    incoming = problem.usual.grad_output
    if problem.case.reduction != "none" or incoming.dim() < 2:
        return ""
    taken = {
        "of the first row": incoming[:1].expand_as(incoming),
        "of the first element": incoming.flatten()[0].expand_as(incoming),
        "of the first column": incoming[:, :1].expand_as(incoming),
    }
    right = subject_of("reference", problem.case)
    if _alike(_answer(right, problem), answer):
        return ""
    for what, other in taken.items():
        call = replace(problem.call(problem.usual, problem.copies()), grad_output=other)
        if not is_close(other, incoming) and _alike(right.send(call), answer):
            return f"its backward uses the grad_output {what} everywhere"
    return ""


def _mistake(draws: list[Problem], answers: list[Answer]) -> str:
    """Name a mistake of ``losscli self-test checks`` that gives the answers to both draws."""
    from losscli.verify.selftest.wrong import WRONG

    case, known = draws[0].case, {each.name.removeprefix("wrong:"): each for each in WRONG}
    right = subject_of("reference", case)
    rights = [_answer(right, each) for each in draws]
    for name, text in MISTAKES.items():
        wrong = known[name]
        if wrong.unavailable(case):
            continue
        try:
            subject = bind(wrong, case)
            found = [_answer(subject, each) for each in draws]
        except Exception:  # this mistake raises here
            continue
        same = all(_alike(*pair) for pair in zip(found, answers, strict=True))
        if same and not all(_alike(*pair) for pair in zip(found, rights, strict=True)):
            return text
    return ""


def _alike(one: Answer, other: Answer) -> bool:
    pairs = ((each, other.items().get(name)) for name, each in one.items().items())
    return all(is_close(*pair) for pair in pairs)
