import itertools
import math
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.functional import cross_entropy
from losscli.implementations.subject import subject_of
from losscli.losses import CLASS_INDICES, LOSSES, ROW, ROW_FORMS, ROW_LOSSES, find_loss
from losscli.runs.records import PASS
from losscli.truth import row_oracle
from losscli.truth.distances import Errors
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Problem
from losscli.truth.row_oracle import RowOracle
from losscli.truth.tolerances import judge_rows, terms_share
from tests.handmade import case_of
from tests.parameters import naming

SETTINGS = {"label_smoothing": 0.1, "temperature": 1.3, "softcap": 3.7, "z_loss": 0.01}


def make_case(loss: str, shape: tuple[int, ...] = (40, 7), **changes: Any) -> Case:
    return case_of(loss, shape, **({"reduction": "mean", "distribution": "normal"} | changes))


def test_each_loss_over_rows_has_its_forms():
    forms = [
        "cross_entropy",
        "weighted_cross_entropy",
        "cross_entropy_with_probabilities",
        "weighted_cross_entropy_with_probabilities",
    ]
    assert [name for name in ROW_FORMS if name in forms] == forms
    assert not {*ROW_FORMS} & {*LOSSES}
    for spec in ROW_FORMS.values():
        assert (spec.unit, find_loss(spec.name)) == (ROW, spec)
    for spec in [ROW_FORMS[name] for name in forms]:
        numbered = any(operand.kind == CLASS_INDICES for operand in spec.operands)
        assert ("ignore_index" in {p.name for p in spec.parameters}) == numbered


@pytest.mark.parametrize(
    ("shape", "rows"), [((5, 7), (5,)), ((7,), ()), ((5, 7, 3), (5, 3)), ((0, 7), (0,))]
)
def test_a_loss_has_the_shape_of_the_rows(shape, rows):
    case = make_case("weighted_cross_entropy", shape)
    assert case.unreduced_shape == case.target_shape == rows
    assert case.classes == 7
    assert case.shapes["weight"] == (7,)


def test_bytes_count_class_indices_and_one_loss_for_each_row():
    case = make_case("cross_entropy", (10, 1000), dtype="bfloat16", reduction="none")
    assert case.operand_bytes == {"input": 20_000, "target": 80}
    assert (case.loss_item_bytes, case.loss_bytes) == (2, 20)
    assert case.floor_bytes("forward") == 20_000 + 80 + 20
    mean = replace(case, reduction="mean")
    assert mean.floor_bytes("forward_backward") == 40_000 + 80
    assert replace(mean, layout="mixed_dtype").operand_bytes["target"] == 40


def test_rows_do_not_broadcast_in_the_middle():
    reason = make_case("cross_entropy", layout="broadcast_middle").impossible
    assert "broadcast" in reason.text


@pytest.mark.parametrize("params", [{}, {"ignore_index": 3}])
def test_class_indices_are_classes_of_which_a_few_rows_are_ignored(params):
    case = make_case("cross_entropy", (4000, 7), params=params)
    target = make_inputs(case)["target"]
    ignored = target == int(case.params["ignore_index"])
    assert target.dtype == torch.int64
    assert {*target[~ignored].tolist()} | {3} == {*range(7)}
    planted = torch.arange(4000) % 997 == 31
    assert bool(ignored[planted].all())
    if not params:
        assert torch.equal(ignored, planted)


def test_a_sliced_target_has_no_class_beside_it():
    target = make_inputs(make_case("cross_entropy", layout="sliced"))["target"]
    whole = torch.empty(0, dtype=target.dtype).set_(target.untyped_storage())
    assert len(whole) == len(target) + 1
    assert whole[0] < 0
    assert int(whole[0]) != -100


@pytest.mark.parametrize("loss", ROW_FORMS)
def test_oracle_in_blocks_is_the_reference_as_a_whole(loss, monkeypatch):
    monkeypatch.setattr(row_oracle, "block_elements", lambda device: 50)
    for shape, reduction, settings in itertools.product(
        [(40, 7), (7,), (5, 7, 3)], find_loss(loss).reductions, [{}, SETTINGS]
    ):
        with naming(shape, reduction, settings):
            assert_blocks_are_the_whole(
                make_case(loss, shape, reduction=reduction, params=settings)
            )


def assert_blocks_are_the_whole(case: Case) -> None:
    problem = Problem.of(case)
    exact = {
        name: (each.double() if each.is_floating_point() else each).requires_grad_(
            name in problem.wrt
        )
        for name, each in problem.operands.items()
    }
    whole = case.spec.reference(*exact.values(), reduction=case.reduction, **case.params)
    incoming = torch.randn(whole.shape, generator=torch.Generator().manual_seed(0)).double()
    gradients = torch.autograd.grad(whole, [exact[name] for name in problem.wrt], incoming)

    assert isinstance(problem.oracle, RowOracle)
    got = torch.full_like(whole, math.nan)
    for truth in problem.oracle.value():
        got[truth.block] = truth.value
        assert bool((truth.scale.abs() >= truth.value.abs()).all())
    torch.testing.assert_close(got, whole, rtol=1e-12, atol=0)
    for name, gradient in zip(problem.wrt, gradients, strict=True):
        got = torch.full_like(gradient, math.nan)
        for truth in problem.oracle.gradient(name, incoming):
            got[truth.block] = truth.value
        torch.testing.assert_close(got, gradient, rtol=1e-11, atol=1e-14)


def test_oracle_reads_no_more_than_a_block_of_whole_rows(monkeypatch):
    monkeypatch.setattr(row_oracle, "block_elements", lambda device: 50)
    problem = Problem.of(make_case("cross_entropy", (40, 7), reduction="none"))
    blocks = [truth.block for truth in problem.oracle.value()]
    assert [(cut.start, cut.stop) for (cut,) in blocks] == [
        (start, min(start + 7, 40)) for start in range(0, 40, 7)
    ]


def test_mean_of_ignored_rows_alone_is_nan_and_has_no_gradient():
    problem = Problem.of(make_case("weighted_cross_entropy"))
    problem.operands["target"].fill_(-100)
    (loss,) = problem.oracle.value()
    one = torch.ones((), dtype=torch.float32)
    gradients = [truth.value for n in problem.wrt for truth in problem.oracle.gradient(n, one)]
    assert bool(loss.value.isnan())
    assert not any(bool(gradient.any()) for gradient in gradients)


def test_weight_gradient_of_many_rows_is_accurate_in_float64():
    problem = Problem.of(make_case("weighted_cross_entropy", (16411, 3), dtype="float64"))
    logits, target, weight = problem.operands.values()
    truths = [*problem.oracle.gradient("weight", torch.ones((), dtype=torch.float64))]
    leaf = weight.clone().requires_grad_()
    (own,) = torch.autograd.grad(cross_entropy(logits, target, leaf), leaf)

    losses, kept = (
        find_loss("cross_entropy").reference(logits, target, reduction="none"),
        target >= 0,
    )
    total = math.fsum(weight[target[kept]].tolist())
    mean = math.fsum((losses[kept] * weight[target[kept]]).tolist()) / total
    for number in range(3):
        of_class = losses[target == number].tolist()
        due = math.fsum([*of_class, *[-mean] * len(of_class)]) / total
        allowed = 64 * 2.0**-53 * float(sum(truth.scale[number] for truth in truths))
        for got in (sum(truth.value[number] for truth in truths), own[number]):
            assert abs(float(got) - due) < allowed


def test_float32_rows_pass_within_four_ulp_and_fail_beyond_what_a_sum_loses():
    statuses = [
        judge_rows(Errors(ulp=ulp, scale=1.0), torch.float32, 100, None).status
        for ulp in (4.0, 4.1, 9.0, 9.1)
    ]
    assert statuses == ["pass", "warn", "warn", "fail"]
    # 4 of the kernel, 4 of the oracle, and what the oracle's sum loses.
    assert judge_rows(Errors(ulp=13.0, scale=1.0), torch.float64, 100).status == "pass"
    assert judge_rows(Errors(ulp=13.1, scale=1.0), torch.float64, 100).status == "fail"
    assert judge_rows(Errors(ulp=6.0, scale=1.0), torch.float32, 100, 6.0).status == "pass"


def test_rounding_of_a_row_sum_widens_the_tolerance_of_the_loss():
    statuses = [
        judge_rows(Errors(ulp=ulp, scale=1.0), torch.float32, 100, 6.0, factor=1.5).status
        for ulp in (6.0, 6.1, 11.0, 11.1)
    ]
    assert statuses == ["pass", "warn", "warn", "fail"]


def test_16_bit_rows_are_rounded_once():
    assert judge_rows(Errors(ulp=1.0), torch.bfloat16, 10**6).status == "pass"
    assert judge_rows(Errors(ulp=1.01), torch.bfloat16, 10**6).status == "fail"
    # 4 ULP of float32 and what a sum of 16,384 terms loses, in ULP of bfloat16.
    assert terms_share(torch.bfloat16, 10**6) == (4 + 64) * 2.0**-16
    assert terms_share(torch.float32, 10**6) == 1.0


def test_records_hold_the_ignored_class_as_any_number():
    case = make_case("cross_entropy", params={"ignore_index": 3.0})
    operands = make_inputs(case).values()
    assert case.spec.functional
    torchs = case.spec.functional(*operands, reduction="mean", **case.params)
    written = case.spec.reference(*operands, reduction="mean", **case.params)
    torch.testing.assert_close(torchs, written, rtol=1e-6, atol=0)


def test_operators_are_defined_from_one_spec_for_all_forms():
    numbers, probabilities = (
        ROW_LOSSES[name] for name in ("cross_entropy", "cross_entropy_with_probabilities")
    )
    assert (numbers.roles, probabilities.roles) == ("rlW", "rRW")
    assert numbers.names == probabilities.names
    assert numbers.module is probabilities.module
    assert numbers.loss is probabilities.loss


@pytest.mark.parametrize(
    "settings",
    [
        {"label_smoothing": 0.1},
        {"label_smoothing": 0.1, "temperature": 1.1, "softcap": 3.7, "z_loss": 0.1},
    ],
)
def test_long_rows_in_float64_are_right_within_a_few_ulp(settings):
    """PyTorch's own softmax has 570 ulp here: the sum of equal gradients in its backward pass."""
    case = make_case("cross_entropy", (2, 50257), dtype="float64", params=settings)
    problem = Problem.of(case)
    incoming = problem.filled(1.0)
    answer = subject_of("custom", case).send(problem.call(incoming))
    for outcome, errors in (
        problem.judge_loss(answer.loss),
        problem.judge("input", answer.gradients["input"], incoming),
    ):
        assert outcome.status == PASS, outcome.reason
        assert errors.ulp <= 16, errors  # four of the kernel, four of the oracle, and its sum
