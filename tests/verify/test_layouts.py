import pytest
import torch

from losscli.cases.case import Case
from losscli.runs.records import FAIL, PASS
from losscli.verify.checks import CHECKS
from losscli.verify.geometry import GEOMETRIES
from losscli.verify.geometry.element import LAYOUTS_OF_PAIRS
from tests.verify.judging import judge, reference

PLAIN = ("value", "gradients")


def read_at(operand, strides, offset):
    """What lies at other strides and another offset; the operand itself where that is outside."""
    last = offset + sum(
        (extent - 1) * stride for extent, stride in zip(operand.shape, strides, strict=True)
    )
    if last >= operand.untyped_storage().size() // operand.element_size():
        return operand
    return operand.as_strided(operand.shape, strides, offset)


def ignores_the_storage_offset(case, input, target):
    return reference(case, *(read_at(o, o.stride(), 0) for o in (input, target)))


def rounds_an_address_down(case, input, target):
    return reference(
        case, *(read_at(o, o.stride(), o.storage_offset() // 4 * 4) for o in (input, target))
    )


def takes_the_strides_of_the_input(case, input, target):
    if input.shape == target.shape:
        target = read_at(target, input.stride(), target.storage_offset())
    return reference(case, input, target)


def takes_a_column_for_a_row(case, input, target):
    if target.dim() == 2 and target.shape[1] == 1 and input.shape[-1] > 1:
        target = target.flatten()[torch.arange(input.shape[-1]) % len(target)]
    return reference(case, input, target)


def takes_the_gradient_of_one_row(case, input, target):
    """The first of all rows that share the target alone counts for its gradient."""
    if target.dim() == 1 and input.dim() == 2:
        rest = target.detach().expand(len(input) - 1, -1)
        target = torch.cat([target.expand(1, -1), rest])
    return reference(case, input, target)


WRONG = {
    "assumes contiguous": "target transposed",
    "transposed gradient": "transposed",
    "wrong middle": "target that repeats in the middle",
    "rounded target": "target of float64",
    ignores_the_storage_offset: "cut out of larger ones",
    rounds_an_address_down: "operands 1 and 3 elements off their alignment",
    takes_the_strides_of_the_input: "input",
    takes_a_column_for_a_row: "target of one column",
    takes_the_gradient_of_one_row: "target of one row, target gradient",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: getattr(wrong, "__name__", wrong))
def test_wrong_layout_fails_and_is_named(make_case, wrong):
    case = make_case("mse", distribution="normal")
    plain = judge(case, wrong, checks=PLAIN)
    (result,) = judge(case, wrong, checks=["layouts"])
    assert {r.status for r in plain} == {PASS}
    assert result.status == FAIL
    assert WRONG[wrong] in result.reason
    assert "expected " in result.reason


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_reason_has_the_layout_and_the_wrong_result(make_case, reduction):
    case = make_case("mse", distribution="normal", reduction=reduction)
    (result,) = judge(case, takes_a_column_for_a_row, checks=["layouts"])
    assert result.reason.startswith("target of one column, ")
    assert ", got " in result.reason


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((8, 24), (8, 24)),
        ((24, 24), (24, 23)),
        ((32768, 32768), (67, 301)),
        ((5,), (37, 101)),
        ((), (37, 101)),
        ((0, 5), (37, 101)),
        ((2, 3, 5), (37, 101)),
    ],
)
def test_the_shape_is_small_has_two_dimensions_and_is_not_square(make_case, shape, small):
    case = GEOMETRIES["element"].for_layouts(make_case("hinge", shape=shape))
    assert isinstance(case, Case)
    assert (case.shape, case.target_shape, case.distribution) == (small, small, "normal")


def test_gaps_between_elements_hold_nan(make_case):
    case = make_case("mse", shape=(4, 6))
    values = torch.arange(24.0).view(4, 6)
    assert case.shape == values.shape
    for place_input, place_target in LAYOUTS_OF_PAIRS.values():
        for place in (place_input, place_target):
            operand = place(values)
            whole = torch.empty(0).set_(operand.untyped_storage())
            held = whole[~whole.isnan()]
            assert set(held.tolist()) >= set(operand.flatten().tolist())
            assert operand.shape == values.shape
    cut = LAYOUTS_OF_PAIRS["operands cut out of larger ones"][0](values)
    assert torch.empty(0).set_(cut.untyped_storage()).isnan().any()


def test_layouts_run_on_one_size(make_case):
    keys = {
        CHECKS["layouts"].key(make_case("mse", shape=shape, distribution=distribution))
        for shape in ((8, 24), (32, 32))
        for distribution in ("uniform", "normal")
    }
    assert len(keys) == 1
    assert CHECKS["layouts"].key(make_case("mse", dtype="float16")) not in keys


def test_square_target_that_is_read_transposed_fails(make_case):
    (result,) = judge(make_case("mse"), "square transposed", checks=("layouts",))
    assert result.status == FAIL
    assert "square operands" in result.reason
    assert "five dimensions" not in result.reason


def takes_a_target_of_the_same_shape(case, input, target):
    if input.shape != target.shape:
        raise ValueError("the target has another shape")
    return reference(case, input, target)


def test_shapes_that_the_losss_function_refuses_are_not_asked_for(make_case):
    case = make_case("binary_cross_entropy", params={})
    results = judge(
        case, takes_a_target_of_the_same_shape, checks=("layouts", "mutated_data", "memory")
    )
    assert {result.status for result in results} == {PASS}
    assert not CHECKS["broadcasts"].asks(case)
    assert CHECKS["broadcasts"].asks(make_case("soft_margin", params={}))
