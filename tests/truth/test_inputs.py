"""The input generators: one that makes every value equal would hide every mistake."""

import itertools

import pytest
import torch

from losscli.cases.axes import DISTRIBUTIONS, DTYPES
from losscli.losses import LOSSES
from losscli.truth import blocks, inputs
from losscli.truth.inputs import STREAMS, make_generator, make_grad_output, make_inputs
from tests.parameters import naming


def branches(case, input, target):
    kinks = torch.tensor(case.spec.kinks(case.params), dtype=torch.float64)
    coordinate = case.spec.branch_coordinate(input.double(), target.double())
    return torch.bucketize(coordinate, kinks, right=True)


@pytest.mark.parametrize("loss", LOSSES)
def test_inputs_have_the_shapes_and_dtype_of_the_case_and_are_finite(make_case, loss):
    for distribution, dtype in itertools.product(DISTRIBUTIONS, DTYPES):
        case = make_case(loss, distribution=distribution, dtype=dtype)
        operands = make_inputs(case)
        with naming(distribution, dtype):
            assert {name: tuple(each.shape) for name, each in operands.items()} == case.shapes
            assert {each.dtype for each in operands.values()} == {getattr(torch, dtype)}
            assert all(each.isfinite().all() for each in operands.values())


@pytest.mark.parametrize("loss", LOSSES)
def test_operands_vary_and_differ_from_the_prediction(make_case, loss):
    for distribution in DISTRIBUTIONS:
        prediction, *others = make_inputs(make_case(loss, distribution=distribution)).values()
        with naming(distribution):
            assert prediction.unique().numel() > 1
            for other in others:
                # The impulse is one element, which a row may lack.
                assert other.unique().numel() > 1 or distribution == "impulse"
                assert not torch.equal(prediction, other.expand_as(prediction))


def test_inputs_follow_the_seed_alone(make_case):
    for distribution in DISTRIBUTIONS:
        with naming(distribution):
            case = make_case(distribution=distribution, seed=3)
            once, again = make_inputs(case), make_inputs(case)
            other = make_inputs(make_case(distribution=distribution, seed=4))
            for name in case.spec.names:
                assert torch.equal(once[name], again[name])
                assert not torch.equal(once[name], other[name])


def test_the_largest_seed_is_accepted(make_case):
    make_inputs(make_case(seed=2**63 - 1))


@pytest.mark.parametrize("distribution", ["normal", "heavy_tailed", "boundary"])
@pytest.mark.parametrize("loss", ["smooth_l1", "hinge"])
def test_inputs_reach_every_branch(make_case, loss, distribution):
    case = make_case(loss, distribution=distribution)
    met = branches(case, *make_inputs(case).values())
    shares = met.flatten().bincount(minlength=len(case.spec.kinks(case.params)) + 1) / met.numel()
    assert (shares > 0.05).all(), shares


@pytest.mark.parametrize(
    ("loss", "params"),
    [
        ("smooth_l1", {"beta": 1.0}),
        ("smooth_l1", {"beta": 0.5}),
        ("hinge", {"margin": 1.5}),
        ("hinge", {"margin": -0.25}),
    ],
)
def test_boundary_inputs_lie_on_and_next_to_each_kink(make_case, loss, params):
    for dtype in DTYPES:
        with naming(dtype):
            case = make_case(loss, params=params, distribution="boundary", dtype=dtype)
            input, target = make_inputs(case).values()
            coordinate = case.spec.branch_coordinate(input.double(), target.double())
            for kink in case.spec.kinks(case.params):
                # The step beside a kink is at most eps times the largest prediction, below 4.
                near = 4 * torch.finfo(input.dtype).eps
                below = ((coordinate < kink) & (coordinate >= kink - near)).double().mean()
                above = ((coordinate > kink) & (coordinate <= kink + near)).double().mean()
                share = 0.9 / 5 / len(case.spec.kinks(case.params))
                assert (coordinate == kink).double().mean() > share
                assert below > share
                assert above > share


def test_a_loss_without_kinks_is_probed_where_its_operands_are_equal(make_case):
    input, target = make_inputs(make_case("mse", distribution="boundary")).values()
    assert (input == target).double().mean() > 0.15
    assert (input != target).double().mean() > 0.7


def test_hinge_targets_are_signs_of_the_last_dimension(make_case):
    for distribution in DISTRIBUTIONS:
        with naming(distribution):
            _, target = make_inputs(
                make_case("hinge", shape=(5, 200), distribution=distribution)
            ).values()
            assert target.shape == (200,)
            assert target.unique().tolist() == [-1.0, 1.0]


def test_impulses_are_few_and_large_and_the_first_element_is_one(make_case):
    input, _ = make_inputs(make_case("mse", shape=(100, 100), distribution="impulse")).values()
    assert (input != 0).sum() == 11
    assert input[0, 0] != 0
    assert input.abs().max() > 10


def test_heavy_tails_reach_far_and_keep_squared_differences_finite_in_float16(make_case):
    case = make_case("mse", shape=(200, 200), distribution="heavy_tailed", dtype="float16")
    input, target = make_inputs(case).values()
    assert input.abs().max() > 20
    assert ((input - target) ** 2).isfinite().all()


def test_scale_multiplies_the_predictions_alone(make_case):
    plain = make_inputs(make_case(distribution="normal"))
    scaled = make_inputs(make_case(distribution="normal", scale=2.0))
    assert torch.equal(scaled["input"], 2 * plain["input"])
    assert torch.equal(scaled["target"], plain["target"])


def test_inputs_of_any_shape_can_be_made(make_case):
    for shape, distribution in itertools.product(
        [(), (0,), (1,), (7,), (0, 5), (2, 3, 4)], DISTRIBUTIONS
    ):
        with naming(shape, distribution):
            input, target = make_inputs(
                make_case("mse", shape=shape, distribution=distribution)
            ).values()
            assert input.shape == target.shape == shape


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("loss", ["mse", "hinge"])
def test_cutting_into_blocks_leaves_no_gap_and_moves_no_impulse(
    make_case, monkeypatch, loss, distribution
):
    case = make_case(loss, shape=(9, 211), distribution=distribution)
    whole, _ = make_inputs(case).values()
    monkeypatch.setattr(inputs, "blocks", lambda shape: blocks.blocks(shape, 64))
    cut, _ = make_inputs(case).values()
    assert cut.isfinite().all()
    assert torch.equal(cut == 0, whole == 0) or distribution != "impulse"
    assert cut.unique().numel() == pytest.approx(whole.unique().numel(), rel=0.1)


def test_an_incoming_gradient_has_the_shape_of_the_loss_and_a_stream_of_its_own(make_case):
    case = make_case("hinge", shape=(6, 50), distribution="normal")
    grad_output = make_grad_output(case)
    assert grad_output.shape == (6, 50)
    assert grad_output.unique().numel() > 250
    assert not torch.equal(grad_output, make_inputs(case)["input"])


def test_no_stream_of_a_seed_is_a_stream_of_another_seed():
    seeds = [
        make_generator(seed, stream).initial_seed()
        for seed in range(50)
        for stream in (*STREAMS, *range(2, 13))
    ]
    assert len(set(seeds)) == len(seeds)


def test_the_incoming_gradient_of_a_seed_is_not_the_prediction_of_the_next(make_case):
    case, following = (
        make_case(reduction="none", distribution="normal", seed=seed) for seed in (0, 1)
    )
    assert not torch.equal(make_grad_output(case), make_inputs(following)["input"])
