"""Describe how wrong results differ from the right ones, and at which elements."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from losscli.implementations.requests import Answer
from losscli.losses import LOSS
from losscli.truth.problem import Problem

CLOSE = 1e-4
"""Relative distance of equal float32 results; for 16 bits as many units."""
FEWEST = 16
"""Elements from which any constant ratio is informative."""
FACTOR = 1e-3
"""Relative distance of a ratio from the number that explains it."""


def difference_of(problem: Problem, answer: Answer) -> str:
    """Describe how a result differs from the right one; empty where nothing simple does."""
    results = [*_results(problem, answer)]
    for part, got, due in results:
        if told := _of_all(got, due, dict(_numbers(problem))):
            return f"its {part} {told}"
    for part, got, due in results:
        if part == LOSS and problem.case.reduction == "none" and got.numel() >= FEWEST:
            told = _of_elements(problem, got, due)
            return f"its loss {told}" if told else ""
    return ""


def _results(problem: Problem, answer: Answer) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield each result of the right shape, where the oracle computes it as one block."""
    for part, got in answer.items().items():
        if got is None:
            continue
        truths = [*problem.truths(part, problem.usual)]
        if len(truths) == 1 and truths[0].value.shape == got.shape:
            yield part, got.detach().double(), truths[0].value


def _of_elements(problem: Problem, got: Tensor, due: Tensor) -> str:
    """Name the elements at which the loss is wrong, or how far off all are."""
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
                return f"is wrong only {told}"
            low, high = torch.stack(operands).aminmax(dim=0)
            least, most = float(low[~wrong].min()), float(high[~wrong].max())
            if bool(((low[wrong] < least) | (high[wrong] > most)).all()):
                return f"is right only for operands from {least:.3g} to {most:.3g}"
    spread = float(relative.square().mean().sqrt())
    for name in ("float16", "bfloat16"):
        unit = torch.finfo(getattr(torch, name)).eps / 2
        if unit / 4 < spread < 2 * unit:
            return f"has a relative error of {spread:.1g} in each element, as if rounded to {name}"
    return ""


def _of_branch(problem: Problem, operands: Sequence[Tensor], wrong: Tensor) -> str:
    """Name the branch of the formula, or the side of the target, that is wrong."""
    spec, params = problem.case.spec, problem.case.params
    kinks = operands[0].new_tensor(spec.kinks(params))
    where = spec.branch_coordinate(*operands) if len(kinks) else torch.zeros_like(operands[0])
    if len(kinks) and bool(torch.isin(where[wrong], kinks).all()):
        return "where branches of the formula meet"
    sides = torch.bucketize(where, kinks)
    found = sides[wrong].unique()
    of_sides = torch.isin(sides, found)
    names = " and ".join(repr(spec.branches(params)[int(n)]) for n in found)
    branch = f"on the branch {names}" if len(kinks) else ""
    orders = {"": torch.ones_like(wrong)} if branch and len(found) <= len(kinks) else {}
    if len(operands) > 1:
        orders |= {
            "where the input is below the target": operands[0] < operands[1],
            "where the input is above the target": operands[0] > operands[1],
        }
    for order, which in orders.items():
        part = of_sides & which  # near the end of a branch both may be the same, so 0.9 are enough
        if not bool((wrong & ~part).any()) and wrong.sum() > 0.9 * part.sum():
            return f"{branch} {order}".strip()
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
            yield math.sqrt(number), f"the square root of {number}, {what}"
    for name, value in problem.case.params.items():
        yield float(value), f"it is {name}"
        yield float(value) ** 2, f"it is the square of {name}"
    weights = problem.operands.get("weight")
    if weights is not None and weights.is_floating_point():
        target = problem.operands["target"]
        of_rows = weights.dim() == 1 and not target.is_floating_point()
        mean = float((weights[target.clamp(min=0)] if of_rows else weights).double().mean())
        yield mean, "it is the mean of the weights"
        yield 1 / mean if mean else 1.0, "it is 1 over the mean of the weights"
    yield from ((2.0, "2"), (0.5, "a half"), (-1.0, "-1: the sign is wrong"))


def _of_all(got: Tensor, due: Tensor, numbers: Mapping[float, str]) -> str:
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
        return f"is {ratio:.6g} times the expected value" + (f": {told}" if told else "")
    if got.dim() == 2 and got.shape[0] == got.shape[1] and is_close(got.t(), due):
        return "is transposed"
    if got.dim() and len(got) > 1 and is_close(got[1:], due[:-1]):
        return "is shifted by one row"
    flat, right = got.flatten(), due.flatten()
    zero = (flat == 0) & (right != 0)
    if bool(zero.any()):
        first = int(zero.nonzero()[0])
        if first and bool((flat[first:] == 0).all()) and is_close(flat[:first], right[:first]):
            return f"is zero from element {first} of {len(flat)} on"
    offset = (got - due).flatten()
    if got.numel() > 1 and bool((offset - offset[0]).abs().max() <= FACTOR * offset[0].abs()):
        return f"is off by {float(offset[0]):.6g} everywhere"
    return ""


def is_close(one: Tensor | None, other: Tensor | None) -> bool:
    """Tell whether two results agree up to rounding."""
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
