"""Checks the derivatives of the gradients by float64 autograd through the reference."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce

import torch
from msgspec.structs import replace
from torch import Tensor

from losscli.implementations.errors import NoSecondDerivativesError
from losscli.implementations.local import Gradients
from losscli.implementations.requests import GRAD_OUTPUT, SecondDerivatives
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, MODEL
from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, VerifyResult
from losscli.truth.distances import index_of, misfit
from losscli.truth.excuse import TWICE_AS_FAR, no_worse
from losscli.truth.inputs import make_generator
from losscli.truth.model import ModelOracle, WrongReferenceError
from losscli.truth.problem import Problem
from losscli.truth.tolerances import REFERENCE_FACTOR, largest_terms, unit_roundoff
from losscli.verify.checks.check import Cost, Tally, check
from losscli.verify.geometry.element import small_case

ROUNDINGS = 32
"""Allowed error in roundings of the magnitudes of a derivative's terms, sums of a few products."""
NEAR, NEAR_DRAWS = 16, 4
"""By how many roundings, and how often, a Model's operands are moved off a kink."""


@check(
    place=290,
    facet="second_derivatives",
    catches="second derivatives that are silently zero or wrong",
    advice="Make backward differentiable, or mark it once_differentiable, so that a second "
    "derivative raises an error and is never silently zero.",
    cost=Cost.QUICK,
    adapt=small_case,
)
def second_derivatives(problem: Problem, subject: Subject, tally: Tally) -> Iterator[VerifyResult]:
    """Check the derivatives of the gradients.

    The check differentiates a weighted sum of all gradients, with weights of both signs, for all
    operands and ``grad_output``. It is skipped if the gradients have no graph and differentiating
    them raises an error.
    """
    operands = problem.case.spec.operands
    if any(operand.smooth for operand in operands):
        smooth = {each.name: each.smoothed(problem.operands[each.name]) for each in operands}
        problem = problem.variant("smooth", partial(problem.like, smooth))
    curvature = _question(problem)
    result = VerifyResult(problem.case, subject.name, "second_derivatives", PASS)
    is_model = problem.case.spec.unit == MODEL
    try:
        found = subject.send(curvature)
        if all(each is None for each in found.values()):
            raise NoSecondDerivativesError("its gradients have no history")
        truths = (_truth_of_model if is_model else _truths)(problem, curvature)
    except (NoSecondDerivativesError, WrongReferenceError) as error:
        yield replace(result, status=SKIPPED, reason=f"no second derivatives: {error}")
        return
    for name, truth in truths.items():
        wrong = truth.judge(found[name])
        if wrong and not (is_model and _is_right_nearby(problem, subject, curvature, name, found)):
            reason = f"of the {name}: {wrong}"
            torchs = [own.send(curvature)[name] for own in problem.torchs_own]
            noisy = problem.of_others
            if not any(truth.is_no_worse(found[name], own, noisy=noisy) for own in torchs):
                result = replace(result, status=FAIL, code=Code.WRONG, reason=reason)
                break
            if not result.reason:
                code = Code.SAME_ERROR_AS_PYTORCH
                result = replace(result, status=WARN, code=code, reason=reason)
    yield result


def _question(problem: Problem) -> SecondDerivatives:
    generator = make_generator(problem.case.seed, "curvature")

    def drawn(like: Tensor) -> Tensor:
        values = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        return values.to(like.device, like.dtype)

    grad_output = drawn(problem.ones) if problem.case.reduction == "none" else problem.ones * 3
    toward = {name: drawn(problem.operands[name]) for name in problem.wrt}
    own, labels = problem.operands, problem.third_party and problem.third_party.labels
    # At the ends of a domain a derivative may be infinite.
    inside = {
        o.name: o.domain.inside(own[o.name], 1 / 16)
        for o in problem.case.spec.operands
        if not (o.domain.discrete or (labels and o.labels))
    }
    return SecondDerivatives({**own, **inside}, grad_output, toward)


@dataclass(frozen=True)
class _Truth:
    operand: Tensor
    value: Tensor
    largest: float
    """The largest sum of the magnitudes of an element's terms."""
    rounded: torch.dtype
    """The narrowest dtype to which it or what it is computed from is rounded."""

    @property
    def bound(self) -> float:
        """The allowed error: at least a subnormal, as all terms may underflow."""
        limits = torch.finfo(self.rounded)
        return ROUNDINGS * limits.eps / 2 * self.largest + limits.tiny * limits.eps

    def errors(self, found: Tensor) -> Tensor:
        return (_stored(found).double() - self.value).abs()

    def misfit(self, found: Tensor) -> str:
        return misfit(found, self.operand.shape, self.operand, self.operand.dtype)

    def judge(self, found: Tensor | None) -> str:
        if found is None:
            return f"expected terms up to {self.largest:.3g}, got none" if self.largest else ""
        if wrong := self.misfit(found):
            return wrong
        error, bound = self.errors(found), self.bound
        # Written so that NaN is wrong.
        if bool((error <= bound).all()):
            return ""
        number = int(error.nan_to_num(nan=torch.inf).argmax())
        expected, got = float(self.value.flatten()[number]), float(found.flatten()[number])
        at = f"expected {expected:.6g}, got {got:.6g} at {[*index_of(number, found.shape)]}"
        return f"{at}; rounding explains at most {bound:.2g}"

    def is_no_worse(self, found: Tensor | None, torchs: Tensor | None, *, noisy: bool) -> bool:
        """Tell whether PyTorch's own derivatives are as wrong wherever those found are.

        ``noisy``: twice its own largest error within the bound is no worse.
        """
        if found is None or torchs is None or self.misfit(found) or self.misfit(torchs):
            return False
        error, own = (self.errors(each).nan_to_num(nan=torch.inf) for each in (found, torchs))
        bound = torch.tensor(self.bound, dtype=error.dtype, device=error.device)
        passes = (error <= bound) | no_worse(error, own, own > bound, bound)
        if noisy and own.numel():
            passes |= error <= TWICE_AS_FAR * own.where(own <= bound, 0.0).amax()
        return bool(passes.all())


def _truths(problem: Problem, asked: SecondDerivatives) -> dict[str, _Truth]:
    """Return the truth by float64 autograd through the reference."""
    case, of_rows = problem.case, problem.case.spec.unit != ELEMENT

    def wide(values: Tensor) -> Tensor:
        # Expanded where that shows how much of each element cancels.
        values = values.detach().double() if values.is_floating_point() else values.detach()
        return values.clone() if of_rows else values.expand(problem.oracle.shape).contiguous()

    operands, toward = (
        {name: wide(values) for name, values in given.items()}
        for given in (asked.operands, asked.toward)
    )
    g = wide(asked.grad_output).requires_grad_()
    leaves = [operands[name].requires_grad_() for name in toward]
    formula = case.spec.second_order or case.spec.reference
    reduction = case.reduction if of_rows else "none"
    loss = formula(*operands.values(), reduction=reduction, **case.spec.resolve(case.params))
    share = 1 / loss.numel() if case.reduction == "mean" and not of_rows else 1.0
    gradients = torch.autograd.grad(loss, leaves, g * share, create_graph=True)
    products = [own * along for own, along in zip(gradients, toward.values(), strict=True)]
    total = reduce(torch.add, [product.sum() for product in products])
    found = torch.autograd.grad(total, (*leaves, g), retain_graph=True, allow_unused=True)
    truths = {}
    for (name, operand), terms in zip(_leaves(asked).items(), found, strict=True):
        leaf = g if name == GRAD_OUTPUT else operands[name]
        terms = torch.zeros_like(leaf) if terms is None else _stored(terms)
        magnitude = terms.abs()
        if of_rows and name == GRAD_OUTPUT:
            # The magnitudes of the products that it sums.
            summed = sum(float(product.detach().abs().sum()) for product in products)
            magnitude = magnitude.max().clamp(min=summed / max(loss.numel(), 1))
        elif name == GRAD_OUTPUT:
            # The gradients, each along its direction: their sum may cancel.
            each = [torch.autograd.grad(own.sum(), g, retain_graph=True)[0] for own in products]
            magnitude = magnitude.fmax(torch.stack(each).abs().sum(0))
            for part, along in toward.items():
                own = largest_terms(case, part, operands, torch.zeros_like(g), along * share)
                magnitude = magnitude if own is None else magnitude.fmax(own)
        if not of_rows:
            magnitude = magnitude.sum_to_size(operand.shape)
        largest = float(magnitude.max()) if magnitude.numel() else 0.0
        rounded = operand.dtype if case.spec.unit != HIDDEN_STATE else problem.prediction.dtype
        truths[name] = _Truth(operand, terms.sum_to_size(operand.shape), largest, rounded)
    return truths


def _leaves(asked: SecondDerivatives) -> dict[str, Tensor]:
    return {name: asked.operands[name] for name in asked.toward} | {GRAD_OUTPUT: asked.grad_output}


def _truth_of_model(problem: Problem, asked: SecondDerivatives) -> dict[str, _Truth]:
    """Return the truth by the Model in float64, measured at the tensor's largest element.

    The scale is larger if the Model's own error in the candidate's dtype is.
    """
    assert isinstance(problem.oracle, ModelOracle)
    own, exact = problem.torchs_own[0].send(asked), problem.oracle.curvature(asked)
    summed = 0.0
    if asked.grad_output.numel() == 1:
        oracle = dataclasses.replace(problem.oracle, operands=asked.operands)
        along = oracle.gradients(tuple(asked.toward), torch.ones_like(asked.grad_output))
        summed = sum(
            float((truth.value * asked.toward[name][truth.block].double()).abs().sum())
            for name, truths in along.items()
            for truth in truths
        )
    truths = {}
    for name, operand in _leaves(asked).items():
        value, rough = (
            torch.zeros_like(operand, dtype=torch.float64) if found is None else found.double()
            for found in (exact[name], own[name])
        )
        largest, off = (float(each.abs().max()) for each in (value, rough - value))
        largest = max(largest, summed) if name == GRAD_OUTPUT else largest
        largest = max(largest, REFERENCE_FACTOR * off / ROUNDINGS / unit_roundoff(operand.dtype))
        truths[name] = _Truth(operand, value, largest, operand.dtype)
    return truths


def _is_right_nearby(
    problem: Problem, subject: Subject, asked: SecondDerivatives, name: str, found: Gradients
) -> bool:
    """Tell whether each wrong element is right a few roundings away, off a Model's kink."""
    generator, wrong = make_generator(problem.case.seed, "direction"), None

    def moved(values: Tensor) -> Tensor:
        if not values.is_floating_point():
            return values
        far = torch.randn(values.shape, generator=generator).to(values)
        return values + values * far * (NEAR * torch.finfo(values.dtype).eps)

    for number in range(1 + NEAR_DRAWS):
        if number:
            operands = {each: moved(values) for each, values in asked.operands.items()}
            asked = dataclasses.replace(asked, operands=operands)
            found = subject.send(asked)
        got, truth = found[name], _truth_of_model(problem, asked)[name]
        if got is None or truth.misfit(got):
            return False
        still = ~(truth.errors(got) <= truth.bound)
        wrong = still if wrong is None else wrong & still
    return wrong is not None and not wrong.any()


def _stored(values: Tensor) -> Tensor:
    """Return stored zeros for autograd's unstored ones, whose use imports PyTorch's compiler."""
    return torch.zeros_like(values) if torch._is_zerotensor(values) else values
