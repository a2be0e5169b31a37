"""The oracle, its blocks and its softmax against values computed by hand and exact sums."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from losscli.cases.axes import DTYPES
from losscli.losses import REDUCTIONS
from losscli.truth import oracle as oracle_module
from losscli.truth.blocks import blocks, part
from losscli.truth.oracle import Oracle
from losscli.truth.row_oracle import AccurateSums
from tests.handmade import pair
from tests.parameters import naming

# Two rows against one target a column: a swapped axis would not even have the right length.
INPUT = ((0.5, -2.0, 3.0), (1.0, 0.25, -0.75))
TARGET = (1.0, -1.0, 1.0)
BY_HAND = {
    # beta 0.5: |d| = .5 1 2 / 0 1.25 1.75, of which only the 0 is quadratic.
    ("smooth_l1", "beta", 0.5): ((0.25, 0.75, 1.75), (0.0, 1.0, 1.5)),
    ("mse", None, None): ((0.25, 1.0, 4.0), (0.0, 1.5625, 3.0625)),
    # margin 1.5 - x * y: x * y = .5 2 3 / 1 -.25 -.75
    ("hinge", "margin", 1.5): ((1.0, 0.0, 0.0), (0.5, 1.75, 2.25)),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Cut even the smallest tensors, so that sums over blocks and cut operands are met."""
    monkeypatch.setattr(oracle_module, "block_elements", lambda device: 2)


def make_oracle(make_case, loss, parameter, value, reduction, dtype="float32"):
    case = make_case(
        loss,
        shape=(2, 3),
        target_shape=(3,),
        reduction=reduction,
        dtype=dtype,
        params={parameter: value} if parameter else {},
    )
    torch_dtype = getattr(torch, dtype)
    operands = (torch.tensor(values, dtype=torch_dtype) for values in (INPUT, TARGET))
    return Oracle(case, pair(*operands))


def assemble(truths, shape, field="value"):
    """Put blocks together; NaN would show a place that was left out."""
    whole = torch.full(shape, math.nan, dtype=torch.float64)
    for truth in truths:
        whole[truth.block] = getattr(truth, field)
    return whole


@pytest.mark.parametrize(("loss", "parameter", "value"), BY_HAND)
def test_oracle_value_matches_a_hand_computation(make_case, loss, parameter, value):
    for dtype, reduction in itertools.product(DTYPES, REDUCTIONS):
        with naming(dtype, reduction):
            elements = torch.tensor(BY_HAND[loss, parameter, value], dtype=torch.float64)
            expected = {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
            oracle = make_oracle(make_case, loss, parameter, value, reduction, dtype)
            torch.testing.assert_close(
                assemble(oracle.value(), oracle.loss_shape()), expected, rtol=0, atol=0
            )


def test_oracle_gradients_match_a_hand_computation(make_case):
    """Hinge at margin 1.5: -y where it is active, and for the target -x summed over the rows."""
    oracle = make_oracle(make_case, "hinge", "margin", 1.5, "sum")
    grad_output = torch.tensor(-2.0)
    input = assemble(oracle.gradient("input", grad_output), (2, 3))
    target = assemble(oracle.gradient("target", grad_output), (3,))
    terms = assemble(oracle.gradient("target", grad_output), (3,), "scale")
    assert input.tolist() == [[2.0, 0.0, 0.0], [2.0, -2.0, 2.0]]
    assert target.tolist() == [2 * (0.5 + 1.0), 2 * 0.25, 2 * -0.75]
    assert terms.tolist() == [3.0, 0.5, 1.5]


def test_sum_of_magnitudes_shows_cancellation(make_case):
    case = make_case("mse", shape=(2, 1), target_shape=(), reduction="sum")
    oracle = Oracle(case, pair(torch.tensor([[3.0], [-3.0]]), torch.tensor(0.0)))
    (truth,) = oracle.gradient("target", torch.tensor(1.0))
    assert truth.value == 0.0
    assert truth.magnitude == 12.0


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", ["smooth_l1", "mse", "hinge"])
def test_blocks_agree_with_float64_autograd_on_the_whole(make_case, loss, reduction):
    for shape, target_shape in [
        ((4, 5), (4, 5)),
        ((4, 5), (5,)),
        ((4, 5), (4, 1)),
        ((4, 5), ()),
        ((4, 1), (5,)),
        ((5,), (4, 5)),
        ((), ()),
        ((0, 5), (5,)),
        ((2, 3, 4), (3, 1)),
    ]:
        with naming(shape, target_shape):
            case = make_case(loss, shape=shape, target_shape=target_shape, reduction=reduction)
            generator = torch.Generator().manual_seed(1)
            input, target = (torch.randn(s, generator=generator) for s in (shape, target_shape))
            leaves = {
                "input": input.double().requires_grad_(),
                "target": target.double().requires_grad_(),
            }
            loss_value = case.spec.reference(**leaves, reduction=reduction, **case.params)
            grad_output = torch.randn(loss_value.shape, generator=generator)
            gradients = torch.autograd.grad(
                loss_value, tuple(leaves.values()), grad_output.double()
            )
            oracle = Oracle(case, pair(input, target))
            torch.testing.assert_close(
                assemble(oracle.value(), loss_value.shape), loss_value.detach(), equal_nan=True
            )
            for name, gradient in zip(leaves, gradients, strict=True):
                truth = assemble(oracle.gradient(name, grad_output), leaves[name].shape)
                torch.testing.assert_close(truth, gradient)


def test_the_mean_of_nothing_is_nan_and_its_sum_zero(make_case):
    for reduction, check in (("mean", math.isnan), ("sum", lambda value: value == 0.0)):
        case = make_case("mse", shape=(0, 3), reduction=reduction)
        (truth,) = Oracle(case, pair(torch.empty(0, 3), torch.empty(0, 3))).value()
        assert check(float(truth.value))


def test_nan_and_infinity_reach_the_value(make_case):
    case = make_case("mse", shape=(3,), reduction="sum")
    zeros = torch.zeros(3)
    for bad in (math.nan, math.inf):
        (truth,) = Oracle(case, pair(torch.tensor([1.0, bad, 2.0]), zeros)).value()
        assert float(truth.value) == bad or (math.isnan(bad) and math.isnan(truth.value))


def test_strided_operands_are_read_without_a_copy(make_case):
    case = make_case("mse", shape=(3, 2), reduction="none")
    input = torch.arange(6.0).view(2, 3).t()
    truth = assemble(Oracle(case, pair(input, torch.zeros(3, 2))).value(), (3, 2))
    assert truth.tolist() == [[0.0, 9.0], [1.0, 16.0], [4.0, 25.0]]


def test_oracle_sum_is_far_more_accurate_than_one_rounding(make_case):
    """One large term among many small ones: plain summation loses digits that count."""
    case = make_case("mse", shape=(4097,), reduction="sum", dtype="float64")
    input = torch.full((4097,), 2.0**-26, dtype=torch.float64)
    input[0] = 1.0
    (truth,) = Oracle(case, pair(input, torch.zeros_like(input))).value()
    assert float(truth.value) == 1.0 + 4096 * 2.0**-52


def test_blocks_cover_every_element_once_in_order_and_stay_within_the_limit():
    for limit, shape in itertools.product(
        [1, 3, 7, 12, 1000], [(), (1,), (11,), (0,), (0, 4), (5, 4), (2, 3, 5)]
    ):
        with naming(limit, shape):
            count = torch.Size(shape).numel()
            tensor = torch.arange(count).view(shape)
            parts = [tensor[block] for block in blocks(shape, limit)]
            assert torch.cat([p.flatten() for p in parts]).tolist() == list(range(count))
            assert all(p.numel() <= limit for p in parts)


def test_a_part_broadcasts_to_its_block():
    for operand_shape in [(), (1,), (5,), (4, 1), (1, 5), (4, 5), (3, 1, 5)]:
        with naming(operand_shape):
            shape = torch.broadcast_shapes(operand_shape, (3, 4, 5))
            operand = torch.randn(operand_shape, generator=torch.Generator().manual_seed(0))
            for block in blocks(shape, 6):
                expected = operand.expand(shape)[block]
                assert torch.equal(part(operand, block).expand(expected.shape), expected)


CLASSES = 50257


def derivative(logits: Tensor, incoming: Tensor) -> Tensor:
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(torch.log_softmax(logits, -1), logits, incoming)[0]


def test_a_long_sum_of_equal_gradients_keeps_its_digits():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(CLASSES, generator=generator, dtype=torch.float64)
    incoming = torch.full_like(logits, 0.1 / CLASSES)
    exponentials = [math.exp(x) for x in logits.tolist()]
    share = math.fsum(incoming.tolist()) / math.fsum(exponentials)
    other = share * torch.tensor(exponentials, dtype=torch.float64)
    # A probability is off by the rounding of its exponent, up to abs(exponent) ulp.
    exponent = (logits - math.log(math.fsum(exponentials))).abs()
    allowed = (4 + exponent) * incoming.fmax(other) * 2.0**-52
    with AccurateSums():
        found = derivative(logits, incoming)
    assert bool(((found - (incoming - other)).abs() <= allowed).all())


@pytest.mark.parametrize("bad", [[], [-math.inf], [-math.inf] * 7, [math.inf], [math.nan]])
def test_values_and_gradients_are_those_of_pytorch(bad):
    logits = torch.linspace(-3, 3, 7, dtype=torch.float64)
    logits[: len(bad)] = torch.tensor(bad, dtype=torch.float64)
    incoming = torch.linspace(1, 2, 7, dtype=torch.float64)
    value, slope = torch.log_softmax(logits, -1), derivative(logits, incoming)
    with AccurateSums():
        torch.testing.assert_close(logits.log_softmax(-1), value, equal_nan=True)
        torch.testing.assert_close(derivative(logits, incoming), slope, equal_nan=True)


def test_at_a_kink_derivatives_between_those_of_both_sides_are_right(make_case):
    case = make_case("hinge", shape=(4,), target_shape=(4,), params={"margin": 1.0})
    operands = pair(torch.tensor([1.0, 0.5, -1.0, 1.0 + 2**-20]), torch.tensor([1.0, 1.0, -1.0, 1]))
    oracle = Oracle(case, operands, either_side=True)
    further = assemble(oracle.gradient("input", torch.ones(())), (4,), "rounding")
    torch.testing.assert_close(further.tolist(), [0.25, 0.0, 0.25, 0.0], rtol=1e-4, atol=0.0)
    of_row = Oracle(case, operands | {"target": torch.tensor(1.0)}, either_side=True)
    (summed,) = of_row.gradient("target", torch.ones(()))
    assert summed.rounding is not None
    assert float(summed.rounding) == pytest.approx(0.25, rel=1e-4)
