from typing import Any

import pytest
import torch

from losscli.cases.case import Case
from losscli.implementations.subject import subject_of
from losscli.losses import LOSS, ROW_FORMS, ROW_LOSSES, find_loss
from losscli.runs.records import FAIL, PASS
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Problem
from tests.handmade import case_of

FORMS = [form for form in ROW_FORMS if form not in ("cross_entropy", "weighted_cross_entropy")]
FORMS = [form for form in FORMS if "cross_entropy_with_prob" not in form]
SHAPE = (37, 101)


def make_case(loss: str, shape: tuple[int, ...] = SHAPE, **changes: Any) -> Case:
    return case_of(loss, shape, **({"distribution": "normal", "scale": 2.0} | changes))


def test_each_loss_has_a_form_of_its_name_and_one_for_each_optional_operand():
    for name, spec in ROW_LOSSES.items():
        assert not any(operand.optional for operand in ROW_FORMS[name].operands)
        for operand in spec.operands:
            if operand.optional:
                prefix = {"mask": "masked_", "weight": "weighted_"}[operand.name]
                assert operand in ROW_FORMS[f"{prefix}{name}"].operands


def test_a_mask_is_bool_and_keeps_most_rows():
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
def test_log_probabilities_of_16_bits_are_float32(loss, dtype, loss_dtype):
    case = make_case(loss, dtype=dtype, reduction="none")
    assert case.loss_dtype == loss_dtype
    assert Problem.of(case).oracle.dtype == getattr(torch, loss_dtype)


def test_two_values_of_a_row_lie_in_front_of_the_rows():
    case = make_case("token_log_probs_with_entropy")
    problem = Problem.of(case)
    (truth,) = problem.oracle.value()
    assert case.unreduced_shape == (2, 37)
    assert truth.value.shape == (2, 37)
    logs = torch.log_softmax(problem.prediction.double(), -1)
    torch.testing.assert_close(truth.value[1], -(logs.exp() * logs).sum(-1))


def test_bytes_are_each_operand_once_and_the_gradient_of_the_prediction_once():
    kl, masked = make_case("kl_divergence"), make_case("masked_kl_divergence")
    tensor = 37 * 101 * 4
    assert kl.floor_bytes("forward") == 2 * tensor
    assert kl.floor_bytes("forward_backward") == 3 * tensor
    assert masked.floor_bytes("forward") == 2 * tensor + 37


@pytest.mark.parametrize(("classes", "read"), [(1000, 32), (3, 12)])
def test_nll_reads_one_sector_of_each_row_and_none_for_the_gradient(classes, read):
    mean = make_case("nll", (37, classes))
    rows = make_case("nll", (37, classes), reduction="none")
    assert mean.floor_bytes("forward") == 37 * (read + 8)
    assert mean.floor_bytes("forward_backward") == 37 * (read + 8 + 4 * classes)
    assert rows.floor_bytes("forward") == 37 * (read + 8 + 4)
    assert rows.floor_bytes("forward_backward") == 37 * (read + 2 * (8 + 4) + 4 * classes)


@pytest.mark.parametrize("loss", FORMS)
def test_a_gradient_that_is_off_by_a_few_ulp_of_its_terms_fails(loss):
    """100 ulp of the largest term of each element, which is what 16 too few of 24 bits make."""
    problem = Problem.of(make_case(loss))
    answer = subject_of("custom", problem.case).send(problem.call(problem.usual))
    for name in problem.wrt:
        gradient = answer.gradients[name]
        assert gradient is not None
        (truth,) = problem.oracle.gradient(name, problem.usual.grad_output)
        off = gradient + 100 * 2.0**-23 * truth.scale.abs().float()
        assert problem.judge(name, off, problem.usual)[0].status == FAIL


def test_a_masked_row_has_no_terms_whatever_it_holds():
    spec = find_loss("masked_kl_divergence")
    rows = torch.full((2, 5), torch.nan, dtype=torch.float64)
    mask = torch.tensor([False, False])
    assert spec.terms is not None
    found = spec.terms.of(rows, rows, mask, temperature=1.0)
    assert {*found} == {LOSS, "input", "target"}
    for name in found:
        assert not found[name].nan_to_num(nan=0.0).any()


def test_rows_that_float32_may_put_on_either_side_of_the_margin_may_have_either_gradient():
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


def tied(dtype: str, gap: float) -> Problem:
    """Return rows of which p and q of the first class are a relative gap apart."""
    problem = Problem.of(make_case("total_variation", (5, 301), dtype=dtype))
    x, y = (each.double() for each in problem.operands.values())
    for _ in range(60):  # the sum of exponentials moves with the logit
        y[:, 0] += (x.log_softmax(-1) - y.log_softmax(-1))[:, 0] - gap
    names, kind = list(problem.operands), getattr(torch, dtype)
    return problem.like(dict(zip(names, (x.to(kind), y.to(kind)), strict=True)))


def flipped(problem: Problem, name: str) -> torch.Tensor:
    """Return the gradient of an operand where the sign of the first class is the other one."""
    x, y = (each.double().requires_grad_() for each in problem.operands.values())
    difference = x.softmax(-1) - y.softmax(-1)
    sign = difference.detach().sign()
    sign[:, 0] *= -1
    loss = (sign * difference).sum(-1).mean() / 2
    place = list(problem.operands).index(name)
    return torch.autograd.grad(loss, (x, y))[place].to(problem.operands[name].dtype)


@pytest.mark.parametrize("name", ["input", "target"])
@pytest.mark.parametrize(
    ("dtype", "gap", "status"),
    [
        ("float32", 2e-6, PASS),
        ("float32", 1e-4, FAIL),
        ("float32", 1e-2, FAIL),
        ("float64", 1e-15, PASS),
        ("float64", 1e-12, FAIL),
        ("bfloat16", 1e-2, FAIL),
    ],
)
def test_the_sign_of_a_tie_is_granted_within_the_roundings_of_a_probability_alone(
    name, dtype, gap, status
):
    problem = tied(dtype, gap)
    outcome, _ = problem.judge(name, flipped(problem, name), problem.usual)
    assert outcome.status == status, outcome.reason


@pytest.mark.parametrize("name", ["input", "target"])
def test_a_tie_grants_the_rest_of_its_row_what_the_sum_moves_and_no_more(name):
    problem = tied("float32", 2e-6)
    right = torch.cat(
        [truth.value for truth in problem.oracle.gradient(name, problem.usual.grad_output)]
    )
    moved = flipped(problem, name).double() - right
    for factor, status in ((0.0, PASS), (1.0, PASS), (1.5, FAIL)):
        gradient = right + factor * moved
        gradient[:, 0] = right[:, 0]
        outcome, _ = problem.judge(name, gradient.float(), problem.usual)
        assert (factor, outcome.status) == (factor, status), outcome.reason


def test_equal_rows_of_logits_have_no_gradient_of_their_distance():
    problem = Problem.of(make_case("total_variation"))
    rows = problem.prediction
    problem = problem.like({"input": rows, "target": rows.clone()})
    zeros = torch.zeros_like(rows)
    assert problem.judge("input", zeros, problem.usual)[0].status == PASS
    off = zeros.index_fill(1, torch.tensor([3]), 1e-6)
    assert problem.judge("input", off, problem.usual)[0].status == FAIL


def test_a_masked_row_grants_nothing():
    spec = find_loss("masked_total_variation")
    rows = torch.randn(2, 5, dtype=torch.float64)
    assert spec.undecided is not None  # type: ignore[attr-defined]
    found = spec.undecided(  # type: ignore[attr-defined]
        rows, rows + 1, torch.tensor([True, False]), dtype=torch.float32, ulp=4.0, temperature=1.0
    )
    for name in ("input", "target"):
        assert found[name][0].all()
        assert not found[name][1].any()


@pytest.mark.parametrize("loss", ["kl_divergence", "reverse_kl_divergence", "soft_cross_entropy"])
def test_a_difference_of_two_probabilities_may_be_off_by_the_errors_of_both(loss):
    """Both are off by almost 4 roundings, to opposite sides; by more than twice as many warns."""
    problem = tied("float32", 1e-2)
    x, y = (each.double() for each in problem.operands.values())
    name = "target" if loss == "reverse_kl_divergence" else "input"
    problem = problem.like(problem.operands, make_case(loss, (5, 301)))
    (truth,) = problem.oracle.gradient(name, problem.usual.grad_output)
    logs = [each.log_softmax(-1) for each in (x, y)]
    of_both = sum((1 + each.abs() / 4) * each.exp() for each in logs) / len(x)
    for roundings, passes in ((3.4, True), (8.8, False)):
        off = truth.value + roundings * 2.0**-24 * of_both
        outcome, _ = problem.judge(name, off.float(), problem.usual)
        assert (outcome.status == PASS) == passes, outcome.reason
