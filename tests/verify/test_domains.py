import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from losscli.bench.passes import Contents
from losscli.bench.plan import Task
from losscli.cases.axes import DISTRIBUTIONS, DTYPES
from losscli.config.schema import Timing
from losscli.implementations import find_implementation
from losscli.losses import LOSSES, Domain, Operand, Tolerance
from losscli.losses.domain import COUNTS, LOG_PROBABILITIES, POSITIVE, PROBABILITIES
from losscli.losses.formulas import reduce
from losscli.runs.records import FAIL
from losscli.truth.inputs import make_inputs
from losscli.verify.checks import CHECKS
from tests.parameters import naming
from tests.verify.judging import put

PLANTS_ANYTHING = "special_values"
"""The check of values that belong to no domain, NaN for example."""
LEFT_OUT = (PLANTS_ANYTHING, "large_outputs")
"""`large_outputs` takes longer than the others together, and draws its inputs as all others do."""


def divergence(input, target, *, reduction):
    return reduce(torch.special.xlogy(target, target) - target * input, reduction)


def cross_entropy(input, target, *, reduction):
    wide = torch.promote_types(input.dtype, target.dtype)
    input, target = torch.broadcast_tensors(input.to(wide), target.to(wide))
    return torch.nn.functional.binary_cross_entropy(input, target, reduction=reduction)


def poisson(input, target, *, reduction):
    return reduce(torch.exp(input) - target * input, reduction)


def gaussian(input, target, variance, *, reduction):
    return reduce(0.5 * (torch.log(variance) + (input - target) ** 2 / variance), reduction)


def difference(input, target, *others):
    return input - target


SPECS: dict[str, tuple[Any, ...]] = {
    "divergence": (
        divergence,
        Operand("input", domain=LOG_PROBABILITIES),
        Operand("target", domain=PROBABILITIES),
    ),
    "cross_entropy": (
        cross_entropy,
        Operand("input", domain=PROBABILITIES),
        Operand("target", domain=PROBABILITIES, differentiable=False),
    ),
    "poisson": (poisson, Operand("input"), Operand("target", domain=COUNTS)),
    "gaussian": (
        gaussian,
        Operand("input"),
        Operand("target"),
        Operand("variance", domain=POSITIVE, integers=False),
    ),
}


@pytest.fixture(params=SPECS)
def loss(request, monkeypatch):
    """A loss whose reference notes each value outside the domain of its operand."""
    reference, *operands = SPECS[request.param]
    outside = []

    def watched(*values, reduction):
        for operand, value in zip(operands, values, strict=True):
            wide = value.detach().double()
            if not torch.equal(wide, operand.domain.inside(wide)):
                outside.append((operand.name, wide.min().item(), wide.max().item()))
        return reference(*values, reduction=reduction)

    spec = replace(
        LOSSES["mse"],
        name=request.param,
        operands=tuple(operands),
        reference=watched,
        functional=None,
        branch_coordinate=difference,
        tolerance=Tolerance(16.0, "1 + log(target) cancels"),
    )
    monkeypatch.setitem(LOSSES, request.param, spec)
    return request.param, outside


DOMAINS = {each.domain.name: each.domain for spec in LOSSES.values() for each in spec.operands}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_draws_become_values_of_the_domain(domain):
    draws = torch.rand(1000) if domain.always_uniform else torch.randn(1000) * 3
    values = domain.of_draws(draws.clone())
    assert torch.equal(values, domain.inside(values))
    assert values.unique().numel() > 1
    assert all(domain.holds(value) for value in domain.short)
    assert domain.holds(domain.at_least_loss)
    if domain.discrete:
        assert torch.equal(values, values.round())
    else:
        assert torch.equal(domain.of_draws(values.clone()), values)


def test_inputs_stay_in_their_domains_and_reach_the_ends(make_case, loss):
    for dtype, distribution in itertools.product(DTYPES, DISTRIBUTIONS):
        with naming(dtype, distribution):
            name, _ = loss
            case = make_case(name, distribution=distribution, dtype=dtype, scale=3.0)
            operands = make_inputs(case)
            for operand in case.spec.operands:
                values, domain = operands[operand.name].double(), operand.domain
                assert values.isfinite().all()
                assert torch.equal(values, domain.inside(values))
                assert values.unique().numel() > 2
                if operand.name != "input" or distribution != "boundary":
                    assert {*domain.ends} <= {*values.flatten().tolist()}


@pytest.mark.parametrize("reduction", [pytest.param("mean", marks=pytest.mark.slow), "none"])
def test_no_check_leaves_the_domains(make_case, loss, reduction):
    name, outside = loss
    case = make_case(name, reduction=reduction, distribution="normal", dtype="float64")
    implementation = find_implementation("reference")
    results = put(case, implementation, checks=[c for c in CHECKS if c not in LEFT_OUT])
    assert outside == []
    assert [(r.check, r.reason) for r in results if r.status == FAIL] == []


def test_values_that_the_reference_refuses_are_not_planted(make_case, loss):
    name, _ = loss
    case = make_case(name, distribution="normal")
    (result,) = put(case, find_implementation("reference"), checks=[PLANTS_ANYTHING])
    assert result.status != FAIL, result.reason


@pytest.mark.parametrize("shape", [(37, 11), (5,)])
def test_contents_change_within_the_domain_and_come_back(make_case, loss, shape):
    name, _ = loss
    case = make_case(name, shape=shape, distribution="normal")
    contents = Contents(Task(case, {}, Timing()), make_inputs(case))
    before = contents.prediction.clone()
    domain: Domain = case.spec.operands[0].domain
    contents.change()
    assert not torch.equal(contents.prediction, before)
    assert torch.equal(contents.prediction, domain.inside(contents.prediction))
    contents.change()
    assert torch.equal(contents.prediction, before)
