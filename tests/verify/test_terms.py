"""Errors are measured in ulp of the largest term where a loss says which of its terms cancel."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from losscli.bench import memory_plan as bench_memory
from losscli.implementations import IMPLEMENTATIONS, Implementation, find_implementation
from losscli.losses import LOSS, LOSSES, REDUCTIONS, Operand
from losscli.losses.domain import POSITIVE
from losscli.losses.elementwise.weighting import weighted
from losscli.losses.fields import Terms
from losscli.losses.formulas import reduce
from losscli.runs.records import FAIL, PASS, WARN, Run
from losscli.truth import oracle as oracle_module
from losscli.truth.blocks import BLOCK_ELEMENTS
from losscli.truth.oracle import Oracle
from losscli.truth.problem import Problem
from losscli.verify.needed_memory import bytes_to_verify
from losscli.verify.selftest.surgery import graft
from losscli.views.verify import reasons
from tests.parameters import SLOW, naming
from tests.verify.judging import judge, put, reference

NAME = "counts"
REASON = "e^input - target cancels"
ULP = torch.finfo(torch.float32).eps


def counts(input, target, *, reduction):
    """Poisson's: the input has a minimum, beside which its gradient cancels; so may the loss."""
    return reduce(torch.exp(input) - target * input, reduction)


def terms_of(input, target):
    power, product = torch.exp(input), (target * input).abs()
    return {LOSS: torch.maximum(power, product), "input": torch.maximum(power, target.abs())}


def spec_of(terms):
    return replace(
        LOSSES["mse"],
        name=NAME,
        operands=(Operand("input"), Operand("target", domain=POSITIVE)),
        reference=counts,
        functional=None,
        terms=terms,
    )


@pytest.fixture
def loss(monkeypatch):
    monkeypatch.setitem(LOSSES, NAME, spec_of(Terms(terms_of, REASON)))
    return NAME


@pytest.fixture
def strict(monkeypatch):
    """The same loss, which names no terms."""
    monkeypatch.setitem(LOSSES, NAME, spec_of(None))
    return NAME


def cancelling(make_case, loss, **changes):
    """Return a problem whose targets are e^input, to the last digit of float32."""
    case = make_case(loss, shape=(64, 33), **changes)
    input = torch.linspace(0.5, 4.0, 64 * 33).view(64, 33)
    target = torch.exp(input.double()).float()
    return Problem(case, {"input": input, "target": target}, excuses=False)


def exact(problem, name, incoming):
    """The truth of a gradient, and the largest of its terms, by hand."""
    x, y = (operand.double() for operand in problem.operands.values())
    gradient = {"input": torch.exp(x) - y, "target": -x}[name]
    share = x.numel() if problem.case.reduction == "mean" else 1
    return gradient * incoming.grad_output / share, torch.exp(x) * 3 / share


def test_gradient_that_cancels_may_be_off_by_four_ulp_of_its_largest_term(make_case, loss):
    problem = cancelling(make_case, loss)
    incoming = problem.filled(-3.0)
    truth, term = exact(problem, "input", incoming)
    spacing = 2 ** term.log2().floor() * ULP
    near = problem.judge("input", (truth + 3.5 * spacing).float(), incoming)
    far = problem.judge("input", (truth + 4.6 * spacing).float(), incoming)
    assert near[0].status == PASS
    assert near[1].ulp == pytest.approx(3.5, abs=0.2)
    assert far[0].status == FAIL
    assert far[1].ulp == pytest.approx(4.6, abs=0.2)
    assert "allowed: 4 ulp of its largest term, " in far[0].reason


def test_the_same_error_fails_where_the_loss_names_no_terms(make_case, strict):
    problem = cancelling(make_case, strict)
    incoming = problem.filled(-3.0)
    truth, term = exact(problem, "input", incoming)
    outcome, errors = problem.judge("input", (truth + ULP * term).float(), incoming)
    assert outcome.status == FAIL
    assert errors.ulp > 1e6
    assert outcome.reason.endswith("allowed: 4 ulp per element")


def test_derivative_without_terms_is_judged_at_itself(make_case, loss):
    problem = cancelling(make_case, loss)
    incoming = problem.filled(1.0, ("target",))
    truth, _ = exact(problem, "target", incoming)
    off, errors = problem.judge("target", (truth * (1 + 5 * ULP)).float(), incoming)
    assert off.status == FAIL
    assert errors.scale == abs(errors.expected)


def test_element_larger_than_its_terms_is_judged_at_itself(make_case, loss):
    """In e^x + 2 |x| the second term is the larger where x is -3, and the sum larger than both."""
    problem = cancelling(make_case, loss, reduction="none")
    negative = problem.like({"input": torch.full((4,), -3.0), "target": torch.full((4,), 1.0)})
    truth = torch.full((4,), math.exp(-3.0) + 3.0)
    _, errors = negative.judge_loss(truth + 4 * ULP)
    assert errors.scale == pytest.approx(math.exp(-3.0) + 3.0)


def test_term_beyond_float64_excuses_nothing(make_case, monkeypatch):
    infinite = Terms(lambda x, y: {LOSS: x * math.inf, "input": x * math.nan}, REASON)
    monkeypatch.setitem(LOSSES, NAME, spec_of(infinite))
    problem = cancelling(make_case, NAME, reduction="none")
    x, y = problem.operands.values()
    wrong = problem.filled(1.0)
    loss, _ = problem.judge_loss((torch.exp(x) - y * x) * 1.01)
    gradient, _ = problem.judge("input", torch.exp(x) * 0.01, wrong)
    assert (loss.status, gradient.status) == (FAIL, FAIL)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_sums_are_measured_at_the_sum_of_the_largest_terms(make_case, loss, reduction, monkeypatch):
    monkeypatch.setattr(oracle_module, "block_elements", lambda device: 2)
    case = make_case(loss, shape=(2, 3), target_shape=(3,), reduction=reduction)
    operands = {
        "input": torch.tensor([[0.0, 1.0, 2.0], [0.0, -1.0, -2.0]]),
        "target": torch.tensor([1.0, 4.0, 2.0]),
    }
    oracle = Oracle(case, operands)
    x, y = operands["input"].double(), operands["target"].double()
    share = 6 if reduction == "mean" else 1
    (value,) = oracle.value()
    parts = list(oracle.gradient("input", torch.tensor(-5.0)))
    shared = list(oracle.gradient("target", torch.tensor(-5.0)))
    elements = torch.exp(x) - y * x
    largest = torch.stack([torch.exp(x), (x * y).abs(), elements.abs()]).amax(0)
    assert float(value.scale) == pytest.approx(float(largest.sum()) / share)
    slopes = torch.stack([torch.exp(x), y.expand(2, 3), (torch.exp(x) - y).abs()]).amax(0)
    found = torch.cat([part.scale.flatten() for part in parts])
    torch.testing.assert_close(found, slopes.flatten() * 5 / share)
    # The target names no terms: the sum of the magnitudes of its gradient.
    found = torch.cat([part.scale.flatten() for part in shared])
    torch.testing.assert_close(found, x.abs().sum(0) * 5 / share)


@pytest.mark.parametrize(
    ("reduction", "dtype"),
    [
        pytest.param("mean", "float32", marks=SLOW),
        pytest.param("none", "float16", marks=SLOW),
        ("none", "bfloat16"),
        ("sum", "float64"),
    ],
)
def test_pytorchs_own_formula_passes_all_checks(make_case, loss, reduction, dtype):
    case = make_case(loss, reduction=reduction, dtype=dtype, distribution="normal")
    results = put(case, find_implementation("reference"))
    assert [(r.check, r.reason) for r in results if r.status not in (PASS, WARN)] == []


@pytest.mark.parametrize(("terms", "status"), [(None, FAIL), (Terms(terms_of, REASON), PASS)])
def test_pytorchs_own_formula_is_right_to_the_last_digits_of_its_terms_alone(
    make_case, monkeypatch, terms, status
):
    monkeypatch.setitem(LOSSES, NAME, spec_of(terms))
    problem = cancelling(make_case, NAME)
    x = problem.operands["input"].clone().requires_grad_()
    counts(x, problem.operands["target"], reduction="mean").backward()
    assert problem.judge("input", x.grad, problem.filled(1.0))[0].status == status


def each(x, y):
    return counts(x, y, reduction="none")


MISTAKES = {
    # The loss, what its gradients are those of, and the check that finds it.
    "off by 100 ulp of the largest term": (
        *(lambda x, y: each(x, y) + 100 * ULP * terms_of(x, y)[LOSS], each, "value"),
    ),
    "one of two terms of the gradient off by 100 ulp": (
        *(each, lambda x, y: torch.exp(x) * (1 + 100 * ULP) - y * x, "input_gradient"),
    ),
    "one of two terms of the gradient left out": (
        *(each, lambda x, y: torch.exp(x) - y * x.detach(), "input_gradient"),
    ),
    "one of two terms of the loss left out": (
        *(lambda x, y: torch.exp(x).expand(y.shape), each, "value"),
    ),
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_a_term_are_found(make_case, loss, reduction, mistake):
    value, source, check = MISTAKES[mistake]
    case = make_case(loss, reduction=reduction, distribution="normal")

    def wrong(x, y):
        return reduce(graft(value(x, y).detach(), source(x, y)), reduction)

    implementation = Implementation("planted", "", lambda case: wrong)
    results = put(case, implementation, checks=["value", "gradients"])
    assert check in {result.check for result in results if result.status == FAIL}


def test_weighted_loss_has_the_terms_of_the_loss_times_the_weight(loss):
    spec = weighted(LOSSES[loss])
    x, y, weight = torch.tensor([[0.5, 2.0], [3.0, 1.0], [-2.0, 0.25]], dtype=torch.float64)
    found, own = spec.terms.of(x, y, weight), terms_of(x, y)
    assert spec.terms.reason == REASON
    assert set(found) == {LOSS, "input", "weight"}
    torch.testing.assert_close(found[LOSS], own[LOSS] * weight.abs())
    torch.testing.assert_close(found["input"], own["input"] * weight.abs())
    torch.testing.assert_close(found["weight"], own[LOSS])


def test_report_says_once_why_errors_are_measured_at_terms(make_case, loss):
    results = put(make_case(loss), find_implementation("reference"), checks=["value", "gradients"])
    run = Run(kind="verify", results=tuple(results))
    lines = [line for line in reasons(run) if REASON in line]
    assert lines == [f"{NAME} is measured in ulp of the largest term of each element: {REASON}"]
    assert {result.terms for result in results} == {REASON}


def test_report_of_other_losses_says_nothing_of_terms(make_case):
    results = put(make_case("mse"), find_implementation("reference"), checks=["value"])
    assert "term" not in "\n".join(reasons(Run(kind="verify", results=tuple(results))))


def bytes_to_bench(*planned):
    return bench_memory.plan_memory(*planned).total


@pytest.mark.parametrize("bytes_of", [bytes_to_verify, bytes_to_bench], ids=["verify", "bench"])
def test_memory_plans_count_the_terms_of_a_block(make_case, loss, monkeypatch, bytes_of):
    case = make_case(loss, shape=(4096, 4096))
    implementations = [IMPLEMENTATIONS["custom"]]
    more = bytes_of(case, "forward", implementations)
    monkeypatch.setitem(LOSSES, NAME, spec_of(None))
    assert more - bytes_of(case, "forward", implementations) == 7 * 8 * BLOCK_ELEMENTS


@pytest.mark.parametrize(("target", "allowed"), [(1.0, 4.0), (3.0, 13.0)])
def test_soft_margin_may_round_a_product_that_its_exponential_multiplies(target, allowed):
    """For input 3 and target 3 it is 9: as much more, in ulp of the gradient."""
    operands = (torch.tensor([3.0], dtype=torch.float64), torch.tensor([target]).double())
    leaves = [each.clone().requires_grad_() for each in operands]
    spec = LOSSES["soft_margin"]
    value = spec.reference(*leaves, reduction="sum")
    gradients = torch.autograd.grad(value, leaves)
    terms = spec.terms.of(*operands)
    for name, exact in zip(("input", "target", LOSS), (*gradients, value.detach()), strict=True):
        assert 4 * float(terms[name]) == pytest.approx(allowed * float(exact.abs()))


CHECKS = ("rounding",)


NUMBERS = [
    (loss, next(p.name for p in spec.parameters if not (p.is_switch or p.is_integer)))
    for loss, spec in LOSSES.items()
    if not all(p.is_switch or p.is_integer for p in spec.parameters)
]
"""The losses that have a parameter which is a number, with its name."""


def cut_off(case, *operands):
    loss = reference(case, *operands)
    exact = reference(case, *(operand.detach().float() for operand in operands))
    bits = exact.view(torch.int32) & -(2**16)
    return graft(bits.view(torch.float32).to(loss.dtype), loss)


def test_truncating_implementation_fails(make_case):
    case = make_case("mse", dtype="bfloat16", reduction="none")
    (result,) = judge(case, cut_off, checks=CHECKS)
    (plain,) = judge(case, cut_off, checks=("boundary_sizes",))
    assert plain.status == PASS
    assert result.status == FAIL
    assert result.reason.startswith("loss: expected no bias on average, but results are 0.4")
    assert result.reason.endswith("ulp too small")


@pytest.mark.parametrize(("loss", "name"), NUMBERS)
def test_parameter_between_two_numbers_of_a_dtype_makes_no_bias(make_case, loss, name):
    for dtype, parameter in itertools.product(["float16", "bfloat16"], [0.1, 1 / 3, 1e-3]):
        with naming(dtype, parameter):
            params = {name: parameter}
            case = make_case(loss, dtype=dtype, reduction="none", params=params)
            (result,) = put(case, find_implementation("custom"), checks=CHECKS)
            (wrong,) = judge(case, cut_off, checks=CHECKS)
            assert (result.status, result.reason) == (PASS, "")
            assert wrong.status == FAIL
