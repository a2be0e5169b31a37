"""The oracle of losses of hidden states: its truth, its blocks, and how far roundings may move it.

Roundings are bounded so that legitimate results pass and small gradients that are left out do not.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from losscli.cases.case import Case
from losscli.implementations.subject import subject_of
from losscli.losses import HIDDEN_STATE, LINEAR_LOSSES, Operand, find_loss
from losscli.losses.rows import cross_entropy
from losscli.runs.records import FAIL, PASS
from losscli.truth import linear_gradients, linear_oracle
from losscli.truth.distances import compare, ulp
from losscli.truth.inputs import make_inputs
from losscli.truth.linear_gradients import Gradient
from losscli.truth.linear_oracle import LinearOracle
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from losscli.truth.tolerances import (
    ELEMENT_ULP,
    ONCE_ROUNDED_FACTOR,
    judge_as_a_whole,
    product_roundings,
)
from tests.handmade import case_of
from tests.parameters import naming

SETTINGS = {"label_smoothing": 0.1, "temperature": 1.3, "softcap": 3.7, "z_loss": 0.01}


def make_case(loss="linear_cross_entropy", shape=(40, 12, 57), **changes) -> Case:
    return case_of(loss, shape, **({"distribution": "normal", "scale": 2.0} | changes))


def truths_by_autograd(case: Case, operands: dict[str, Tensor], incoming: Tensor) -> list[Tensor]:
    wide = {n: x.double() if x.is_floating_point() else x for n, x in operands.items()}
    leaves = [wide[name].requires_grad_() for name in case.spec.differentiable]
    loss = case.spec.reference(*wide.values(), reduction=case.reduction, **case.params)
    return [loss.detach(), *torch.autograd.grad(loss, leaves, incoming.double())]


def assert_truth_is_that_of_the_formula(case: Case) -> None:
    problem = Problem.of(case)
    incoming = problem.usual
    loss_due, *due = truths_by_autograd(case, problem.operands, incoming.grad_output)
    assert compare(loss_due, problem.oracle.value()).ulp <= 1
    found = problem.oracle.gradients(problem.wrt, incoming.grad_output)
    for name, gradient in zip(problem.wrt, due, strict=True):
        assert compare(gradient, found[name]).ulp <= 1, name


def test_operands_follow_from_tokens_width_and_classes():
    case = make_case("biased_linear_cross_entropy", (5, 3, 7))
    operands = make_inputs(case)
    assert {name: tuple(x.shape) for name, x in operands.items()} == {
        "input": (5, 3),
        "target": (5,),
        "linear_weight": (7, 3),
        "linear_bias": (7,),
    }
    assert (case.elements, case.classes, case.unreduced_shape) == (15, 7, (5,))
    assert (case.operations("forward"), case.operations("forward_backward")) == (210, 630)
    assert {spec.unit for spec in LINEAR_LOSSES.values()} == {HIDDEN_STATE}


def test_logits_have_the_spread_of_the_hidden_states():
    operands = make_inputs(make_case(shape=(256, 64, 512), scale=1.0))
    logits = linear(operands["input"], operands["linear_weight"])
    assert 0.9 < logits.std() < 1.1


@pytest.mark.parametrize("loss", LINEAR_LOSSES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_truth_is_that_of_the_formula_in_float64(loss, reduction):
    spec = find_loss(loss)
    if reduction not in spec.reductions:
        reduction = spec.reductions[0]
    known = {name: SETTINGS[name] for name in SETTINGS if name in spec.resolve({})}
    for params in ({}, known):
        case = make_case(loss, reduction=reduction, dtype="float64", params=params)
        with naming(params):
            assert_truth_is_that_of_the_formula(case)


def scaled(product: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return product * scale - shift


def scaled_loss(input, target, linear_weight, scale, shift, **settings):
    logits = scaled(linear(input, linear_weight), scale.reshape(-1, 1), shift)
    del settings["memory_budget"]
    return cross_entropy.functional(logits, target, None, **settings)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_operands_enter_by_the_formula_of_the_logits(monkeypatch, reduction):
    plain = LINEAR_LOSSES["linear_cross_entropy"]
    of_rows = Operand("scale", shape=lambda size: size[:1])
    of_classes = Operand("shift", shape=lambda size: size[2:], shared=True)
    operands = (*plain.operands, of_rows, of_classes)
    loss = replace(plain, name="scaled", operands=operands, logits=scaled, reference=scaled_loss)
    monkeypatch.setitem(LINEAR_LOSSES, "scaled", loss)
    for params in ({}, SETTINGS):
        case = make_case("scaled", reduction=reduction, dtype="float64", params=params)
        with naming(params):
            assert_truth_is_that_of_the_formula(case)
    assert 0.005 < max(shares_of_bound(make_case("scaled", dtype="float32"))) < 1


def test_the_slope_of_an_infinite_logit_under_a_softcap_may_be_off_by_roundings():
    case = make_case(dtype="float32", reduction="mean", params=SETTINGS)
    operands = make_inputs(case)
    operands["linear_weight"][7, 10] = math.inf
    oracle = LinearOracle(case, operands)
    (found,) = oracle.gradients(["linear_weight"], torch.tensor(1.0))["linear_weight"]
    assert found.rounding is not None
    others = torch.arange(12) != 10  # the product with the infinite number itself is none
    assert (found.value[7, others] == 0).all()
    assert (found.rounding[7, others] > 0).all()
    assert (found.rounding[7, others] < 1e-6).all()


def test_blocks_of_rows_and_classes_give_the_whole(monkeypatch):
    case = make_case(dtype="bfloat16", reduction="none")
    operands = make_inputs(case)
    incoming = torch.randn(40, dtype=torch.bfloat16)
    names = case.spec.differentiable
    whole = LinearOracle(case, operands).gradients(names, incoming)
    (value,) = LinearOracle(case, operands).value()
    largest: list[int] = []
    logits_of = LinearOracle._logits

    def watched(oracle, place, **named):
        largest.append(len(place) * 57)
        return logits_of(oracle, place, **named)

    monkeypatch.setattr(linear_oracle, "logits_block_elements", lambda device: 4 * 57)
    monkeypatch.setattr(LinearOracle, "_logits", watched)
    parts = LinearOracle(case, operands)
    (again,) = parts.value()
    assert torch.allclose(again.value, value.value, rtol=1e-13)
    for name, truths in parts.gradients(names, incoming).items():
        for truth, due in zip(truths, whole[name], strict=True):
            assert torch.allclose(truth.value, due.value, rtol=1e-12, atol=1e-15)
            assert truth.rounding is not None
            assert due.rounding is not None
            assert torch.allclose(truth.rounding, due.rounding, rtol=1e-6)
    assert max(largest) == 4 * 57


def shares_of_bound(case: Case) -> list[float]:
    """Return the largest error of the reference over what roundings explain, for each gradient."""
    problem = Problem.of(case)
    incoming = problem.usual
    answer = subject_of("reference", case).send(problem.call(incoming))
    shares = []
    for name in problem.wrt:
        got = answer.gradients[name]
        assert got is not None
        for truth in problem.gradient(name, incoming):
            assert truth.rounding is not None
            allowed = truth.rounding + ELEMENT_ULP * ulp(truth.value, got.dtype)
            error = (got[truth.block].double() - truth.value).abs()
            shares.append(float((error / allowed).max()))
    return shares


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_errors_of_legitimate_products_are_within_the_bound_and_within_reach_of_it(dtype):
    for seed in range(3):
        shares = shares_of_bound(make_case(dtype=dtype, seed=seed))
        assert 0.005 < max(shares) < 1, shares


U32 = 2.0**-24
VOCABULARY = (3, 16, 50257)
"""Few rows, whose gradients a matrix product on a CPU adds up in one accumulator."""


def gradient_of(value: Tensor) -> Gradient:
    return Gradient(value, torch.zeros_like(value), None)


@pytest.mark.parametrize("length", [1, 4, 16384, 50257, 10**6])
def test_a_product_of_n_terms_loses_a_random_walk_of_n_roundings(length):
    value = torch.tensor([[0.25, -0.5]]).double()
    (moved,) = gradient_of(value).summed(length, U32).moved
    assert moved.tolist() == pytest.approx([0.25 * U32 * length**0.5, 0.5 * U32 * length**0.5])


def test_a_product_over_classes_also_loses_terms_below_half_a_spacing_of_the_sum():
    value = torch.tensor([[0.75, -0.25, 0.99 * U32, -0.99 * U32, 1.01 * U32, 0.0]]).double()
    value /= value.abs().sum()
    (moved,) = gradient_of(value).summed_over_classes(U32).moved
    walk = value.abs()[0] * U32 * 6**0.5
    lost = value.abs()[0].where(torch.tensor([0, 0, 1, 1, 0, 0]).bool(), 0.0)
    assert torch.allclose(moved, walk + lost, rtol=1e-12, atol=0)


def test_terms_of_infinite_or_nan_rows_move_nothing():
    value = torch.tensor([[1.0, math.nan, math.inf], [1.0, math.inf, -2.0]]).double()
    moved = gradient_of(value).summed_over_classes(U32).moved
    assert moved.isfinite().all()


def test_each_gradient_has_the_length_of_its_own_product():
    """Hidden states sum over classes, the weight and the bias over tokens that count."""
    case = make_case("biased_linear_cross_entropy", (9, 4, 100), params={"ignore_index": 3})
    operands = make_inputs(case)
    operands["target"][:5] = torch.tensor([0, 1, 2, 3, 4])
    lengths: list[int] = []

    def watched(length: int) -> float:
        lengths.append(length)
        return product_roundings(length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_gradients, "product_roundings", watched)
        problem = Problem(case, operands)
        counted = int((operands["target"] != 3).sum())
        for name, due in (("input", 100), ("linear_weight", counted), ("linear_bias", counted)):
            lengths.clear()
            list(problem.oracle.gradient(name, torch.ones(())))
            assert lengths == [due], name


def in_order(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of matrices, added up in float32 in one accumulator, term by term."""
    terms = (row.unsqueeze(1) * second for row in first)
    sums = [np.add.accumulate(each.numpy(), axis=0)[-1] for each in terms]
    return torch.from_numpy(np.stack(sums))


@pytest.mark.parametrize("seed", [1, 5])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_vocabulary_added_up_in_one_accumulator_is_right(seed, reduction):
    problem = Problem.of(make_case(shape=VOCABULARY, seed=seed, reduction=reduction))
    own = subject_of("custom", problem.case).send(problem.call(problem.usual)).gradients["input"]
    assert problem.judge("input", own, problem.usual)[0].status == PASS
    if reduction == "mean":
        operands = dict(problem.operands)
        p = torch.softmax(operands["input"].double() @ operands["linear_weight"].double().t(), 1)
        p.scatter_add_(1, operands["target"][:, None], torch.full_like(p[:, :1], -1.0))
        summed = in_order((p / 3).float(), operands["linear_weight"])
        (truth,) = problem.gradient("input", problem.usual)
        size = (p / 3).abs() @ operands["linear_weight"].double().abs()
        walks = (summed.double() - truth.value).abs() / (U32 * math.sqrt(50257) * size)
        assert float(walks.max()) > 2  # the random walk alone is too small a bound
        assert problem.judge("input", summed, problem.usual)[0].status == PASS


@pytest.mark.parametrize("name", ["input", "linear_weight"])
def test_a_gradient_just_within_the_bound_passes_and_one_just_beyond_it_fails(name):
    problem = Problem.of(make_case(shape=VOCABULARY, seed=1))
    for beyond, status in ((-1.5, PASS), (1.5, FAIL)):  # storing it rounds by up to 1 ULP
        got = problem.operands[name].clone()
        for truth in problem.gradient(name, problem.usual):
            assert truth.rounding is not None
            allowed = truth.rounding + (ELEMENT_ULP + beyond) * ulp(truth.value, got.dtype)
            got[truth.block] = (truth.value + allowed).float()
        assert problem.judge(name, got, problem.usual)[0].status == status


def test_the_bound_of_a_vocabulary_is_a_few_times_what_one_accumulator_loses():
    shares = shares_of_bound(make_case(shape=VOCABULARY, seed=1))
    assert 0.1 < max(shares) < 1, shares


def test_a_vocabulary_without_its_improbable_classes_fails():
    problem = Problem.of(make_case(shape=VOCABULARY, seed=1))
    operands = dict(problem.operands)
    p = torch.softmax(operands["input"].double() @ operands["linear_weight"].double().t(), 1)
    for least in (2.0**-12, 2.0**-18):
        filtered = gradients_of(torch.where(p < least, 0.0, p), operands)
        for name, gradient in filtered.items():
            judged, _ = problem.judge(name, gradient.float(), problem.usual)
            assert judged.status == FAIL, (name, least)


def gradients_of(p: Tensor, operands: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what the gradients of a mean are of such probabilities, with products in float64."""
    target = operands["target"]
    share = p.scatter_add(1, target.clamp(min=0)[:, None], torch.full_like(p[:, :1], -1.0))
    share[target < 0] = 0
    share /= int((target >= 0).sum())
    return {
        "input": share @ operands["linear_weight"].double(),
        "linear_weight": share.t() @ operands["input"].double(),
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["input", "linear_weight"])
def test_a_gradient_of_zeros_and_one_of_small_probabilities_left_out_fail(name, dtype):
    problem = Problem.of(make_case(shape=(64, 32, 401), dtype=dtype, scale=3.0))
    incoming = problem.usual
    right = subject_of("custom", problem.case).send(problem.call(incoming)).gradients[name]
    assert right is not None
    operands = dict(problem.operands)
    p = torch.softmax(operands["input"].double() @ operands["linear_weight"].double().t(), 1)
    filtered = gradients_of(torch.where(p < 2.0**-12, 0.0, p), operands)[name].to(right.dtype)
    assert problem.judge(name, right, incoming)[0].status == PASS
    assert problem.judge(name, torch.zeros_like(right), incoming)[0].status == FAIL
    # Sums over all classes hide them in 16 bits, those over tokens do not.
    if (name, dtype) != ("input", "bfloat16"):
        assert problem.judge(name, filtered, incoming)[0].status == FAIL


def test_sums_in_bfloat16_are_worse_than_one_product_of_rounded_gradients():
    problem = Problem.of(make_case(shape=(512, 32, 200), dtype="bfloat16", reduction="sum"))
    incoming = problem.usual
    truths = list(problem.gradient("linear_weight", incoming))
    once = truths[0].once_rounded
    assert once is not None
    operands = problem.operands
    hidden, weight, target = operands["input"], operands["linear_weight"], operands["target"]
    logits = linear(hidden, weight).float().requires_grad_()
    torch.nn.functional.cross_entropy(logits, target, reduction="sum").backward()
    assert logits.grad is not None
    gradient = logits.grad.bfloat16()
    product = (gradient.t().float() @ hidden.float()).bfloat16()
    total = torch.zeros_like(weight)
    for g, h in zip(gradient.split(8), hidden.split(8), strict=True):
        total += g.t() @ h
    legitimate, narrow = (compare(each, truths).relative / once for each in (product, total))
    assert legitimate < 1.1
    assert narrow > ONCE_ROUNDED_FACTOR
    assert judge_as_a_whole(compare(product, truths), once).status == PASS
    wrong = judge_as_a_whole(compare(total, truths), once)
    assert (wrong.status, wrong.code) != (PASS, "")


def test_ignored_tokens_have_no_loss_no_gradient_and_do_not_count():
    case = make_case(params={"ignore_index": 3})
    operands = make_inputs(case)
    operands["target"][::2] = 3
    operands["input"][0] = math.nan
    oracle = LinearOracle(case, operands)
    (value,) = oracle.value()
    found = oracle.gradients(("input", "linear_weight"), torch.ones(()))
    kept = operands["target"] != 3
    due = torch.nn.functional.cross_entropy(
        linear(operands["input"][kept].double(), operands["linear_weight"].double()),
        operands["target"][kept],
    )
    assert torch.allclose(value.value, due, rtol=1e-13)
    gradient = torch.cat([truth.value for truth in found["input"]])
    assert not gradient[~kept].any()
    assert all(bool(truth.value.isfinite().all()) for truth in found["linear_weight"])


def test_the_mean_of_no_tokens_is_nan_and_its_gradient_zero():
    case = make_case(params={"ignore_index": 3})
    operands = make_inputs(case)
    operands["target"].fill_(3)
    oracle = LinearOracle(case, operands)
    (value,) = oracle.value()
    assert value.value.isnan()
    assert not any(
        bool(truth.value.any())
        for truths in oracle.gradients(("input", "linear_weight"), torch.ones(())).values()
        for truth in truths
    )


def with_logits(first: tuple[float, ...], second: tuple[float, ...]) -> tuple[Problem, Tensor]:
    """Return a problem in bfloat16, and its logits.

    Those of classes 4 and 7 of token 2 are the sums of these parts.
    """
    case = make_case(shape=(16, 128, 64), dtype="bfloat16")
    operands = make_inputs(case)
    places = slice(5, 5 + len(first))
    operands["input"][2] = 0
    operands["input"][2, places] = 1
    operands["linear_weight"][:, places] *= 0.1
    operands["linear_weight"][4, places] = torch.tensor(first).bfloat16()
    operands["linear_weight"][7, places] = torch.tensor(second).bfloat16()
    operands["target"].clamp_(min=0)[2] = 1
    logits = operands["input"].double() @ operands["linear_weight"].double().t()
    return Problem(case, operands), logits


BOTH = Incoming("1", ("input", "linear_weight"), torch.ones(()))


def test_roundings_may_decide_which_of_two_classes_is_likelier():
    problem, logits = with_logits((300.0, 0.90625), (298.0, 1.125))
    rounded = logits.bfloat16().double()
    assert rounded[2, 4] == rounded[2, 7] == 300
    for name, gradient in gradients_of(torch.softmax(rounded, 1), dict(problem.operands)).items():
        assert problem.judge(name, gradient.bfloat16(), BOTH)[0].status == PASS
        assert next(iter(problem.gradient(name, BOTH))).once_rounded is None


def test_a_token_whose_class_is_decided_leaves_gradients_judged_as_a_whole():
    problem, logits = with_logits((300.0,), (20.0,))
    for name, gradient in gradients_of(torch.softmax(logits, 1), dict(problem.operands)).items():
        judged = [problem.judge(name, (f * gradient).bfloat16(), BOTH) for f in (1, 4)]
        assert [outcome.status for outcome, _ in judged] == [PASS, FAIL]
        assert next(iter(problem.gradient(name, BOTH))).once_rounded is not None


def test_two_huge_logits_that_are_equal_share_their_probability():
    problem, _ = with_logits((1e19,), (1e19,))
    [truth] = problem.gradient("input", BOTH)
    assert float(truth.value[2, 5]) == pytest.approx(1e19 / 16, rel=0.01)


def test_no_rounding_explains_what_is_no_number():
    case = make_case(shape=(8, 4, 9))
    operands = make_inputs(case)
    operands["input"][2, 1] = math.inf
    problem = Problem(case, operands)
    incoming = Incoming("1", ("input",), torch.ones(()))
    zeros = torch.zeros_like(operands["input"])
    assert problem.judge_loss(torch.tensor(1.0))[0].status == FAIL
    assert problem.judge("input", zeros, incoming)[0].status == FAIL
