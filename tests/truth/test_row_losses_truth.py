"""Losses over rows of one to three operands: their forms, operands, terms and bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from losscli.cases import Case
from losscli.implementations.caller import Subject
from losscli.losses import LOSS, ROW_FORMS, ROW_LOSSES, find_loss
from losscli.runs.records import FAIL, PASS
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Problem

FORMS = [form for form in ROW_FORMS if form not in ("cross_entropy", "weighted_cross_entropy")]
FORMS = [form for form in FORMS if "cross_entropy_with_prob" not in form]
SHAPE = (37, 101)


def make_case(loss: str, shape: tuple[int, ...] = SHAPE, **changes: Any) -> Case:
    spec = find_loss(loss)
    given: dict[str, Any] = {
        "dtype": "float32",
        "reduction": spec.reductions[-1] if len(spec.reductions) == 1 else "mean",
        "device": "cpu",
        "distribution": "normal",
        "seed": 0,
        "scale": 2.0,
    } | changes
    params = spec.resolve(given.pop("params", {}))
    return Case(loss, shape, spec.default_target_shape(shape), params=params, **given)


def test_each_loss_has_a_form_of_its_name_and_one_for_each_optional_operand() -> None:
    for name, spec in ROW_LOSSES.items():
        assert not any(operand.optional for operand in ROW_FORMS[name].operands)
        for operand in spec.operands:
            if operand.optional:
                prefix = {"mask": "masked_", "weight": "weighted_"}[operand.name]
                assert operand in ROW_FORMS[f"{prefix}{name}"].operands


def test_a_mask_is_bool_and_keeps_most_rows() -> None:
    case = make_case("masked_kl_divergence", (4000, 7))

    mask = make_inputs(case)["mask"]

    assert case.dtypes["mask"] == "bool"
    assert (mask.dtype, mask.shape) == (torch.bool, (4000,))
    assert 0.7 < float(mask.double().mean()) < 0.8
    assert case.operand_bytes["mask"] == 4000


@pytest.mark.parametrize(
    ("loss", "dtype", "loss_dtype"),
    [
        ("kl_divergence", "bfloat16", "bfloat16"),
        ("token_log_probs", "bfloat16", "float32"),
        ("token_log_probs", "float64", "float64"),
    ],
)
def test_log_probabilities_of_16_bits_are_float32(loss: str, dtype: str, loss_dtype: str) -> None:
    case = make_case(loss, dtype=dtype, reduction="none")

    assert case.loss_dtype == loss_dtype
    assert Problem.of(case).oracle.dtype == getattr(torch, loss_dtype)


def test_two_values_of_a_row_lie_in_front_of_the_rows() -> None:
    case = make_case("token_log_probs_with_entropy")
    problem = Problem.of(case)

    (truth,) = problem.oracle.value()

    assert case.unreduced_shape == (2, 37)
    assert truth.value.shape == (2, 37)
    logs = torch.log_softmax(problem.prediction.double(), -1)
    torch.testing.assert_close(truth.value[1], -(logs.exp() * logs).sum(-1))


def test_bytes_are_each_operand_once_and_the_gradient_of_the_prediction_once() -> None:
    kl, masked = make_case("kl_divergence"), make_case("masked_kl_divergence")
    tensor = 37 * 101 * 4

    assert kl.floor_bytes("forward") == 2 * tensor
    assert kl.floor_bytes("forward_backward") == 3 * tensor
    assert masked.floor_bytes("forward") == 2 * tensor + 37


@pytest.mark.parametrize(("classes", "read"), [(1000, 32), (3, 12)])
def test_nll_reads_one_sector_of_each_row_and_none_for_the_gradient(
    classes: int, read: int
) -> None:
    mean = make_case("nll", (37, classes))
    rows = make_case("nll", (37, classes), reduction="none")

    assert mean.floor_bytes("forward") == 37 * (read + 8)
    assert mean.floor_bytes("forward_backward") == 37 * (read + 8 + 4 * classes)
    assert rows.floor_bytes("forward") == 37 * (read + 8 + 4)
    assert rows.floor_bytes("forward_backward") == 37 * (read + 2 * (8 + 4) + 4 * classes)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("loss", FORMS)
def test_the_kernels_stay_within_the_bounds(loss: str, dtype: str) -> None:
    params = {p.name: p.off_default for p in find_loss(loss).parameters}
    problem = Problem.of(make_case(loss, dtype=dtype, params=params))

    answer = Subject.of("custom", problem.case).answer(problem.call(problem.usual))

    assert problem.judge_loss(answer.loss)[0].status == PASS
    for name in problem.wrt:
        verdict, _ = problem.judge_gradient(name, answer.gradients[name], problem.usual)
        assert (name, verdict.status, verdict.reason) == (name, PASS, "")


@pytest.mark.parametrize("loss", FORMS)
def test_a_gradient_that_is_off_by_a_few_ulp_of_its_terms_fails(loss: str) -> None:
    """100 ulp of the largest term of each element, which is what 16 too few of 24 bits make."""
    problem = Problem.of(make_case(loss))
    answer = Subject.of("custom", problem.case).answer(problem.call(problem.usual))
    for name in problem.wrt:
        gradient = answer.gradients[name]
        assert gradient is not None
        (truth,) = problem.oracle.gradient(name, problem.usual.grad_output)
        off = gradient + 100 * 2.0**-23 * truth.scale.abs().float()

        assert problem.judge_gradient(name, off, problem.usual)[0].status == FAIL


def test_a_masked_row_has_no_terms_whatever_it_holds() -> None:
    spec = find_loss("masked_kl_divergence")
    rows = torch.full((2, 5), torch.nan, dtype=torch.float64)
    mask = torch.tensor([False, False])
    assert spec.terms is not None

    found = spec.terms.of(rows, rows, mask, temperature=1.0)

    assert {*found} == {LOSS, "input", "target"}
    for name in found:
        assert not found[name].nan_to_num(nan=0.0).any()


def test_rows_that_float32_may_put_on_either_side_of_the_margin_may_have_either_gradient() -> None:
    """A loss that is 0 but for roundings has the gradient of the row, or none."""
    spec = find_loss("triplet_margin")
    rows = torch.randn(3, 1, 768, dtype=torch.float64)
    anchor, positive, negative = rows
    near, far = ((anchor - other + 1e-6).norm() for other in (positive, negative))
    if near > far:
        positive, negative, near, far = negative, positive, far, near
    margin = float(far - near)
    assert spec.terms is not None
    scales = {
        above: spec.terms.of(anchor, positive, negative, margin=margin + above)["anchor"].max()
        for above in (-1e-2, -1e-7, 0.0, 1e-7, 1e-2)
    }

    assert scales[-1e-2] == 0  # whose gradient is 0
    assert scales[0.0] == scales[1e-2]  # the side of a row on the kink is known
    for above in (-1e-7, 1e-7):
        assert 4 * 2**-23 * scales[above] >= scales[1e-2]
