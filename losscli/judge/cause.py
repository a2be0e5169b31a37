"""Finds out what a wrong result is: the result of a known mistake, or the right one times a number.

The mistakes are those of ``losscli self-test checks``. They run on the case that failed, on two
draws; the one whose loss and gradients are the candidate's is named.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.cases.case import Case
from losscli.errors import LosscliError
from losscli.implementations import Implementation
from losscli.implementations.errors import SubjectError
from losscli.implementations.requests import Answer, Forward
from losscli.implementations.subject import Subject, bind, subject_of
from losscli.losses import LOSS
from losscli.runs.records import FAIL
from losscli.truth.problem import Problem, operand_of
from losscli.units import format_size

SMALL = (7, 9)
"""A size at which most that depends on the size is right."""
LARGE = 4096
"""Elements from which on a result may be wrong for its size."""
CALLS = 4
MOST_OF = 0.9
"""How much of a branch is wrong where the branch is."""
SAME_SUM = 2e-6
"""Relative distance of two sums of float32 that are of the same numbers."""
CLOSE = 1e-4
"""Relative distance of two float32 results that are the same; of 16 bits as many units."""
FEWEST = 16
"""Elements whose ratio says something, whatever number it is."""
FACTOR = 1e-3
"""How near a ratio is to a number that explains it."""

MISTAKES: Mapping[str, str] = {
    "constant": "it returns a constant",
    "zeros": "it returns zeros",
    "one percent": "it computes the first percent of the elements alone",
    "dropped tail": "it leaves out the last elements, which fill no whole block",
    "ignored parameter": "it ignores a parameter",
    "rounded parameters": "it rounds the parameters to the dtype of the operands",
    "branch left out": "it leaves out a branch of the formula",
    "branch scaled": "it scales a branch of the formula",
    "branches swapped": "it swaps two branches of the formula",
    "wrong axis": "a target of one row follows the first dimension, not the last",
    "sum for mean": "it returns the sum where the mean is due",
    "1/rows for 1/N": "it divides by the rows, not by the elements",
    "ignored incoming": "its backward ignores grad_output",
    "squared incoming": "its backward multiplies by grad_output twice",
    "small gradients lost": "it takes small gradients for zero",
    "wrong sign": "the sign of a gradient is wrong",
    "absent gradient": "a gradient is missing",
    "float16 inside": "it computes in float16",
    "narrow accumulator": "it adds up in too few digits",
    "transposed gradient": "a gradient is transposed",
    "wrong middle": "it repeats a target along the wrong dimension",
    "square transposed": "it reads square operands transposed",
    "rounded target": "it rounds the target",
    "mean of means": "it takes the mean of the means of blocks that are not equally long",
    "counts ignored rows": "its mean counts the ignored rows",
    "weight forgotten": "it forgets the weight",
    "softmax alone": "its gradient is the softmax alone, without the target",
    "maximum kept": "it takes exponentials without subtracting the largest logit",
    "dropped classes": "it leaves out the last classes of a row",
    "narrow sum of a row": "it adds up a row in too few digits",
    "smooths the others": "label smoothing leaves out the class of the target",
    "smooths a part": "label smoothing reaches a part of the classes alone",
    "gradient over the logits": "it writes the gradient over the logits",
    "no gradient of later rows": "later rows have no gradient",
    "no gradient of the weight": "the weight has no gradient",
    "gradient of ignored rows": "ignored rows have a gradient",
    "classes last": "it takes the last dimension for the classes",
    "incoming of the first row": "its backward multiplies each row by the first row's grad_output",
    "clamps targets": "it clamps class indices",
    "input for target": "it takes the input for the target",
    "temperature forgotten": "it forgets the temperature",
    "mean left out": "its gradient leaves out the mean over a row",
    "one softmax alone": "its gradient takes one of two softmaxes alone",
    "sign near a tie": "the sign of a gradient is wrong near a tie",
    "epsilon added": "it adds an epsilon where the larger of two is due",
    "other side": "a non-differentiable point belongs to the other side",
    "rest left out, of k classes": "it leaves out the classes beyond the k largest",
    "no gradient of the rest, of k classes": "the classes beyond the k largest have no gradient",
    "rest as a difference, of k classes": "it computes the rest of the classes as a difference",
    "temperature of both, of k classes": "it applies the temperature to both sides",
    "other direction, of k classes": "it computes the divergence in the other direction",
    "classes in order, of k classes": "it takes the first k classes, not the given ones",
    "counts ignored rows, of hidden states": "its mean counts the ignored tokens",
    "softmax alone, of hidden states": "its gradient is the softmax alone, without the target",
    "maximum kept, of hidden states": "it takes exponentials without subtracting the largest logit",
    "filtered gradients, of hidden states": "it leaves out small gradients",
    "sums in bfloat16": "it adds up a gradient in bfloat16",
}
"""What a mistake of the self-test is, by its name. The others change what other code computes."""


def cause_of(problem: Problem, candidate: Implementation) -> str:
    """Return what a candidate's wrong results in a case are; empty where that is not known."""
    unreduced = replace(problem.case, reduction="none")
    problems = [problem]
    if "none" in problem.case.spec.reductions and not candidate.unavailable(unreduced):
        problems.append(problem.like(problem.operands, unreduced))  # says more, if less often
    for each in problems:
        with suppress(SubjectError, LosscliError):
            subject, draws = bind(candidate, each.case), [each, each.sibling()]
            if found := _of_shape(each, subject) or _of_calls(each, subject):
                return found
            answers = [subject.send(own.call(own.usual, own.copies())) for own in draws]
            found = (
                _mistake(draws, answers)
                or _of_incoming(each, answers[0])
                or _factor(each, answers[0])
                or _of_places(each, answers[0])
                or _of_part(draws, answers)
                or _of_setting(each, candidate)
            )
            if found:
                return found
    return ""


def _of_part(draws: list[Problem], answers: list[Answer]) -> str:
    fits: Tensor | None = None
    for problem, answer in zip(draws, answers, strict=True):
        case, got = problem.case, answer.loss.detach().double()
        if case.reduction == "none" or "none" not in case.spec.reductions or got.numel() != 1:
            return ""
        unreduced = problem.like(problem.operands, replace(case, reduction="none"))
        losses = torch.cat([truth.value.flatten() for truth in unreduced.value()])
        truths = [*problem.value()]
        count = len(losses)
        if count < FEWEST or len(truths) != 1:
            return ""
        sums = losses.cumsum(0)
        scale = truths[0].value.reshape(()) / sums[-1]  # of a mean, one by what it is divided
        of_first = sums * scale
        own_mean = of_first * count / torch.arange(1, count + 1).to(sums)
        own_mean[count // 2 :] = torch.nan  # near the whole there are too many
        same = min(SAME_SUM, 0.1 / count) * got.abs()
        near = [(each - got).abs() <= same for each in (of_first, own_mean)]
        found = near[0] | near[1]
        fits = found if fits is None else fits & found
    if fits is None or bool(fits[-1]) or int(fits.sum()) != 1:
        return ""
    first = int(fits.nonzero()[0]) + 1
    left = len(fits) - first
    if left < first:
        return f"it leaves out the last {left} of {len(fits)} losses"
    return f"its {draws[0].case.reduction} is over the first {first} of {len(fits)} losses alone"


def _of_setting(problem: Problem, candidate: Implementation) -> str:
    case = problem.case
    if _is_right(problem, case, candidate):  # something else is wrong
        return ""
    usual = {each.name: each.default for each in case.spec.parameters}
    told = [f"{name}={value:g}" for name, value in case.params.items() if value != usual[name]]
    if told and _is_right(problem, replace(case, params=usual), candidate):
        return f"it is right with the default parameters, and wrong with {', '.join(told)}"
    small = tuple(map(min, case.shape, SMALL))
    grows = len(case.shape) == 2 and case.elements > LARGE
    if grows and _is_right(problem, case.reshaped(small), candidate):
        return f"it is right at {format_size(small)} and wrong at {format_size(case.shape)}"
    return ""


def _is_right(problem: Problem, case: Case, candidate: Implementation) -> bool:
    if candidate.unavailable(case):
        return False
    other = Problem.of(case, third_party=problem.third_party)
    answer = bind(candidate, case).send(other.call(other.usual, other.copies()))
    outcomes = (other.judge(part, got, other.usual)[0] for part, got in answer.items().items())
    return all(outcome.status != FAIL for outcome in outcomes)


def _of_shape(problem: Problem, subject: Subject) -> str:
    loss, shape = subject.send(Forward(problem.operands)), tuple(problem.prediction.shape)
    if problem.case.reduction == "none" or len(shape) != 2 or not loss.dim():
        return ""
    rows, columns = shape
    along = {columns: "rows", rows: "columns"}.get(loss.numel(), "")
    return f"its {problem.case.reduction} is over the {along} alone" if along else ""


def _of_calls(problem: Problem, subject: Subject) -> str:
    calls = [problem.call(problem.usual, problem.copies()) for _ in range(CALLS)]
    losses = [subject.send(call).loss.detach().double() for call in calls]
    losses += [subject.send(Forward(problem.copies())).double() for _ in range(CALLS)]
    kinds = torch.stack(losses).nan_to_num().split(CALLS)
    if max(_distance(*of.aminmax(dim=0)) for of in kinds) > SAME_SUM:
        return "calls with the same operands give different results"
    if not _close(losses[-1], losses[0]):
        wrong = problem.judge_loss(losses[0].to(problem.oracle.dtype))[0].status == FAIL
        return f"its loss is wrong {'with' if wrong else 'without'} a gradient alone"
    return ""


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the relative distance of two results, infinite where one is NaN."""
    scale = other.abs().max().clamp(min=torch.finfo(other.dtype).tiny)
    return float(((one - other).abs().max() / scale).nan_to_num(nan=math.inf))


def _of_places(problem: Problem, answer: Answer) -> str:
    """Say on which elements alone the loss or its gradient is wrong, and how far off others are."""
    if problem.case.reduction != "none":
        return ""
    first = next(iter(problem.operands))
    gradient = answer.items().get(f"{first}_gradient")
    truths = [*problem.value()], [*problem.gradient(first, problem.usual)]
    for what, got, due in (("loss", answer.loss, truths[0]), ("gradient", gradient, truths[1])):
        if got is None or len(due) != 1 or got.shape != due[0].value.shape:
            continue
        if told := _of_elements(problem, got.detach().double(), due[0].value):
            return f"its {what} {told}"
    return ""


def _of_elements(problem: Problem, got: Tensor, due: Tensor) -> str:
    if got.numel() < FEWEST:
        return ""
    if bool((got == got.flatten()[0]).all()):
        return f"is {float(got.flatten()[0]):.6g} everywhere"
    operands = [each.detach().double() for each in problem.operands.values()]
    off = (got - due).abs()
    relative = off / due.abs().clamp(min=1e-3 * float(due.abs().max()))
    wrong = ~(relative <= CLOSE)
    if all(each.shape == off.shape for each in operands):
        squares = sum(each.square() for each in operands)
        unit = torch.finfo(problem.oracle.dtype).eps
        if bool((off <= 4 * unit * squares).all()) and bool((off > 1e3 * unit * due.abs()).any()):
            return "loses its digits where large numbers cancel"
        if bool(wrong.any()) and not bool(wrong.all()):
            if told := _of_branch(problem, operands, wrong):
                return f"is wrong {told} alone"
            low, high = torch.stack(operands).aminmax(dim=0)
            least, most = float(low[~wrong].min()), float(high[~wrong].max())
            if bool(((low[wrong] < least) | (high[wrong] > most)).all()):
                return f"is right for operands from {least:.3g} to {most:.3g} alone"
    spread = float(relative.square().mean().sqrt())
    for dtype in (torch.float16, torch.bfloat16):
        unit = torch.finfo(dtype).eps / 2
        if unit / 4 < spread < 2 * unit:
            name = str(dtype).removeprefix("torch.")
            return f"is off by {spread:.1g} of itself in each element, as {name} is"
    return ""


def _of_branch(problem: Problem, operands: Sequence[Tensor], wrong: Tensor) -> str:
    """Say on which branch of the formula, or on which side of the target, elements are wrong."""
    spec, params = problem.case.spec, problem.case.params
    kinks = operands[0].new_tensor(spec.kinks(params))
    where = spec.branch_coordinate(*operands) if len(kinks) else torch.zeros_like(operands[0])
    if len(kinks) and bool(torch.isin(where[wrong], kinks).all()):
        return "where branches of the formula meet"
    sides = torch.bucketize(where, kinks)
    of_sides = torch.isin(sides, sides[wrong].unique())
    names = " and ".join(repr(spec.branches(params)[int(n)]) for n in sides[wrong].unique())
    branch = f"on the branch {names}" if len(kinks) else ""
    everywhere = torch.ones_like(wrong)
    some = len(sides[wrong].unique()) <= len(kinks)
    orders = {"": everywhere} if branch and some else {}
    if len(operands) > 1:
        orders |= {
            "where the input is below the target": operands[0] < operands[1],
            "where the input is above the target": operands[0] > operands[1],
        }
    for order, which in orders.items():
        part = of_sides & which  # near the end of a branch both may be the same
        if not bool((wrong & ~part).any()) and wrong.sum() > MOST_OF * part.sum():
            return f"{branch} {order}".strip()
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
    if _alike(right.send(problem.call(problem.usual, problem.copies())), answer):
        return ""
    for what, other in taken.items():
        call = replace(problem.call(problem.usual, problem.copies()), grad_output=other)
        if not _close(other, incoming) and _alike(right.send(call), answer):
            return f"its backward takes the grad_output {what} for all"
    return ""


def _mistake(draws: list[Problem], answers: list[Answer]) -> str:
    case = draws[0].case
    right = subject_of("reference", case)
    rights = [right.send(each.call(each.usual, each.copies())) for each in draws]
    for name, wrong in _mistakes().items():
        if wrong.unavailable(case):
            continue
        try:
            subject: Subject = bind(wrong, case)
            found = [subject.send(each.call(each.usual, each.copies())) for each in draws]
        except Exception:  # it is wrong in a way that raises here
            continue
        same = all(_alike(*pair) for pair in zip(found, answers, strict=True))
        if same and not all(_alike(*pair) for pair in zip(found, rights, strict=True)):
            return MISTAKES[name]
    return ""


@cache
def _mistakes() -> dict[str, Implementation]:
    from losscli.verify.selftest.wrong import WRONG

    named = {each.name.removeprefix("wrong:"): each for each in WRONG}
    return {name: named[name] for name in MISTAKES}


def _alike(one: Answer, other: Answer) -> bool:
    """Tell whether two answers are the same but for roundings."""
    pairs = ((each, other.items().get(name)) for name, each in one.items().items())
    return all(_close(*pair) for pair in pairs)


def _close(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.shape != other.shape:
        return False
    a, b = one.detach().double(), other.detach().double()
    bad = a.isfinite() != b.isfinite()
    scale = b[b.isfinite()].abs().max() if bool(b.isfinite().any()) else b.new_zeros(())
    few = max(CLOSE, 8 * torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0)
    off = (a - b).abs().nan_to_num(nan=0.0, posinf=0.0)
    return not bool(bad.any()) and bool((off <= few * scale).all())


def _factor(problem: Problem, answer: Answer) -> str:
    incoming = problem.usual
    for part, got in answer.items().items():
        if got is None:
            continue
        of_gradient = problem.gradient(operand_of(part), incoming) if part != LOSS else ()
        truths = [*(problem.value() if part == LOSS else of_gradient)]
        if len(truths) != 1 or truths[0].value.shape != got.shape:
            continue
        told = _shape_of(got.detach().double(), truths[0].value, dict(_numbers(problem)))
        if told:
            return f"its {part} {told}"
    return ""


def _numbers(problem: Problem) -> Iterator[tuple[float, str]]:
    shape, count = problem.prediction.shape, problem.oracle.unreduced_shape.numel()
    known = {count: "the number of losses", problem.prediction.numel(): "the number of elements"}
    if len(shape) == 2:
        known |= {shape[0]: "the number of rows", shape[1]: "the number of columns"}
    for number, what in known.items():
        if number > 1:
            yield float(number), f"{number} is {what}"
            yield 1 / number, f"1/{number}, and {number} is {what}"
            yield math.sqrt(number), f"the root of {number}, {what}"
    for name, value in problem.case.params.items():
        yield float(value), f"it is {name}"
        yield float(value) ** 2, f"it is the square of {name}"
    weights = problem.operands.get("weight")
    if weights is not None and weights.is_floating_point():
        target = problem.operands["target"]
        of_rows = weights.dim() == 1 and not target.is_floating_point()
        mean = float((weights[target.clamp(min=0)] if of_rows else weights).double().mean())
        yield mean, "it is the mean of the weights"
        yield 1 / mean if mean else 1.0, "it is one over the mean of the weights"
    yield from ((2.0, "2"), (0.5, "a half"), (-1.0, "-1: the sign is wrong"))


def _shape_of(got: Tensor, due: Tensor, numbers: Mapping[float, str]) -> str:
    """Say how a result differs from what is due; empty where nothing simple does."""
    if not got.numel():
        return ""
    bad = ~got.isfinite() & due.isfinite()
    if bool(bad.any()):
        first = int(bad.flatten().nonzero()[0])
        kind = "NaN" if bool(got.flatten()[first].isnan()) else "infinite"
        return f"is {kind} from element {first} on" if got.dim() else f"is {kind}"
    visible = due.abs() > 1e-6 * due.abs().max()
    ratios = (got / due)[visible]
    if not ratios.numel():
        return ""
    ratio = float(ratios.median())
    if bool(((ratios - ratio).abs() <= FACTOR * abs(ratio)).all()) and ratio:
        if abs(ratio - 1) <= FACTOR:
            return ""
        named = (text for n, text in numbers.items() if abs(ratio - n) <= FACTOR * abs(n))
        told = next(named, "")
        if not told and got.numel() < FEWEST:
            return ""
        return f"is {ratio:.6g} times what is due" + (f": {told}" if told else "")
    if got.dim() == 2 and got.shape[0] == got.shape[1] and _close(got.t(), due):
        return "is transposed"
    if got.dim() and len(got) > 1 and _close(got[1:], due[:-1]):
        return "is one row late"
    flat, right = got.flatten(), due.flatten()
    zero = (flat == 0) & (right != 0)
    if bool(zero.any()):
        first = int(zero.nonzero()[0])
        if first and bool((flat[first:] == 0).all()) and _close(flat[:first], right[:first]):
            return f"is zero from element {first} of {len(flat)} on"
    offset = (got - due).flatten()
    if got.numel() > 1 and bool((offset - offset[0]).abs().max() <= FACTOR * offset[0].abs()):
        return f"is off by {float(offset[0]):.6g} everywhere"
    return ""
