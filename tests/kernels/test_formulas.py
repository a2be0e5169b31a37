"""What depends on the formula, for every loss of the registry: nothing here names a loss.

Operands are drawn inside the domains of the spec. How they lie in memory, in which process or under
which transform they are computed does not depend on the formula: three losses test that, see
``tests/machinery.py``.
"""

import inspect
import itertools
import math
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.func import grad, jvp, vmap

from losscli import nn
from losscli.cases.axes import Distribution
from losscli.cases.case import Case
from losscli.implementations import find_implementation
from losscli.implementations.local import Operands
from losscli.implementations.subject import subject_of
from losscli.losses import LOSSES, REDUCTIONS, reduce
from losscli.runs.records import FAIL, PASS
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Problem
from tests import handmade
from tests.gradients import assert_right
from tests.parameters import SLOW, naming
from tests.verify.judging import put

from .losses import DTYPES, PARAMETERS

pytestmark = [
    pytest.mark.parametrize("loss", LOSSES),
    # PyTorch's own, at the first use of forward mode.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]
SHAPE = (5, 205)
"""One element more than a tile of the CPU, in rows of no whole vectors."""
DISTRIBUTIONS: tuple[Distribution, ...] = ("normal", "heavy_tailed", "boundary")
"""Around 0, far from it, and at the kinks."""
MARGIN = 0.05
"""How far from kinks and ends of domains derivatives by differences are taken."""
STEP = 1e-4
"""Between the points of which a difference is taken."""
AT_EVERY_POINT = (
    *("branches", "exact", "special_values", "second_derivatives"),
    *("value", "gradients", "boundary_sizes", "broadcasts"),
)
"""The checks of `losscli verify` whose points follow from the formula, and those of all tails."""


def case_of(loss, shape, dtype, device, reduction="mean", distribution="normal", parameters=None):
    """A case whose incoming gradient is not 1, and without a reduction changes from element to
    element."""
    settings = {"reduction": reduction, "distribution": distribution, "target_shape": shape}
    settings["params"] = PARAMETERS[loss] if parameters is None else parameters
    given = 1.0 if reduction == "none" else -3.0
    return handmade.case_of(loss, shape, dtype=dtype, device=device, grad_output=given, **settings)


def draw(case: Case) -> Operands:
    line = case.reshaped((math.prod(case.shape),))
    return {
        name: operand.expand(line.shape).reshape(case.shape).contiguous()
        for name, operand in make_inputs(line).items()
    }


def function_of(loss: str, reduction: str = "mean", **parameters: float) -> partial[Tensor]:
    settings = PARAMETERS[loss] | parameters
    return partial(LOSSES[loss].loss, reduction=reduction, **settings)


def assert_meets_oracle(case: Case, operands: Operands) -> None:
    problem = Problem(case, operands, excuses=False)
    assert problem.wrt
    assert_right(problem, subject_of("custom", case).send(problem.call(problem.usual)))


def leaves_of(case: Case, operands: Operands) -> tuple[Tensor, ...]:
    wanted = case.spec.differentiable
    return tuple(each.detach().requires_grad_(name in wanted) for name, each in operands.items())


def with_gradient(case: Case, operands: tuple[Tensor, ...]) -> tuple[int, ...]:
    return tuple(k for k, name in enumerate(case.spec.names) if name in case.spec.differentiable)


def is_smooth(case: Case, operands: Operands) -> Tensor:
    """Tell where PyTorch's own gradients are the differences of its own formula.

    Not where an operand beside the prediction is clamped, which the kinks of the spec do not tell.
    """
    reference = partial(case.spec.reference, reduction="none", **case.params)
    leaves = leaves_of(case, operands)
    places = with_gradient(case, leaves)
    slopes = torch.autograd.grad(reference(*leaves).sum(), [leaves[k] for k in places])
    smooth = torch.ones_like(slopes[0], dtype=torch.bool)
    for k, slope in zip(places, slopes, strict=True):
        above, below = (
            reference(
                *(each.detach() + (STEP * side if j == k else 0) for j, each in enumerate(leaves))
            )
            for side in (0.5, -0.5)
        )
        smooth &= ((above - below) / STEP - slope).abs() <= 1e-3 * slope.abs() + 1e-3
    return smooth


def smooth_points(case: Case, count: int) -> Operands:
    """Operands of float64 away from kinks and from the ends of the domains."""
    operands = draw(case.reshaped((64 * count,), dtype="float64"))
    keeps = torch.ones(64 * count, dtype=torch.bool, device=case.device)
    for name, domain in case.spec.domains.items():
        if domain.discrete:
            # Neither at an end nor at another value where a formula may have a case of its own.
            operands[name] = operands[name] + 0.3
        keeps &= operands[name] == domain.inside(operands[name], MARGIN)
    coordinate = case.spec.branch_coordinate(*operands.values())
    for kink in case.spec.kinks(case.params):
        keeps &= (coordinate - kink).abs() > MARGIN
    operands = {name: each[keeps] for name, each in operands.items()}
    smooth = is_smooth(case, operands)
    assert smooth.sum() >= count, "too few draws lie away from kinks and ends"
    return {name: each[smooth][:count] for name, each in operands.items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_value_and_gradients_meet_the_oracle(loss, dtype, device):
    for distribution, reduction in itertools.product(DISTRIBUTIONS, REDUCTIONS):
        case = case_of(loss, SHAPE, dtype, device, reduction, distribution)
        assert_meets_oracle(case, draw(case))


def test_gradient_of_the_prediction_alone_has_the_bits_of_that_beside_others(loss, device):
    """In training only the prediction's is wanted, and kernels may compute that one alone."""
    for reduction, dtype in itertools.product(REDUCTIONS, DTYPES):
        function = function_of(loss, reduction)
        case = case_of(loss, (3, 4096), dtype, device, reduction)
        operands = draw(case)
        leaves = leaves_of(case, operands)
        wanted = [leaves[k] for k in with_gradient(case, leaves)]
        together = torch.autograd.grad(function(*leaves).sum(), wanted)[0]
        first = leaves[0].detach().requires_grad_()
        others = [each.detach() for each in leaves[1:]]
        (alone,) = torch.autograd.grad(function(first, *others).sum(), first)
        assert torch.equal(alone, together), case.name


@pytest.mark.parametrize("settings", ["examples", "defaults"])
def test_first_and_second_derivatives_equal_differences(loss, settings, device):
    spec = LOSSES[loss]
    parameters = PARAMETERS[loss] if settings == "examples" else spec.resolve({})
    case = case_of(loss, (6,), "float64", device, parameters=parameters)
    table = {name: each.view(2, 3) for name, each in smooth_points(case, 6).items()}
    leaves = leaves_of(case, table)
    for reduction in ("none", "mean"):
        function = partial(spec.loss, reduction=reduction, **parameters)
        assert torch.autograd.gradcheck(function, leaves)
        assert torch.autograd.gradgradcheck(function, leaves)


def test_with_grad_gives_what_autograd_gives(loss, device):
    for reduction in REDUCTIONS:
        case = case_of(loss, SHAPE, "float32", device, reduction)
        operands = draw(case)
        first, *others = leaves_of(case, operands)
        expected = function_of(loss, reduction)(first, *others)
        incoming = torch.full_like(expected, -3.0).detach()
        (slope,) = torch.autograd.grad(expected, first, incoming)
        got, gradient = LOSSES[loss].loss_with_grad(
            *operands.values(), reduction=reduction, grad_output=-3.0, **PARAMETERS[loss]
        )
        with naming(reduction):
            torch.testing.assert_close(got, expected.detach(), rtol=0, atol=0)
            torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=0)


def test_tangent_of_the_loss_is_gradient_times_tangents(loss, device):
    case = case_of(loss, SHAPE, "float64", device)
    points = smooth_points(case, 15)
    leaves = leaves_of(case, {name: each.view(3, 5) for name, each in points.items()})
    places = with_gradient(case, leaves)
    torch.manual_seed(0)
    tangents = [torch.randn_like(leaves[k]) for k in places]

    def of_differentiable(*given, reduction="none"):
        values = [leaf.detach() for leaf in leaves]
        for k, value in zip(places, given, strict=True):
            values[k] = value
        return function_of(loss, reduction)(*values)

    given = tuple(leaves[k].detach() for k in places)
    elements = function_of(loss, "none")(*leaves).sum()
    slopes = torch.autograd.grad(elements, [leaves[k] for k in places])
    expected = torch.stack([a * b for a, b in zip(slopes, tangents, strict=True)]).sum(0)
    for reduction in REDUCTIONS:
        reduced = partial(of_differentiable, reduction=reduction)
        value, tangent = jvp(reduced, given, tuple(tangents))[:2]
        with naming(reduction):
            torch.testing.assert_close(value, function_of(loss, reduction)(*leaves).detach())
            torch.testing.assert_close(tangent, reduce(expected, reduction))


def test_losses_and_gradients_of_a_batch_are_those_of_each_sample(loss, device):
    case = case_of(loss, (4, 7), "float64", device)
    operands = tuple(draw(case).values())
    for reduction in REDUCTIONS:
        function = function_of(loss, reduction)
        for of_one in (function, grad(lambda *given: function(*given).sum())):  # noqa: B023
            each = [of_one(*sample) for sample in zip(*operands, strict=True)]
            torch.testing.assert_close(vmap(of_one)(*operands), torch.stack(each), equal_nan=True)


def test_nan_in_the_prediction_stays_nan(loss, device):
    if LOSSES[loss].operands[0].refused:
        return  # The public function raises on the CPU; tests of bad input look at both devices.
    for dtype in DTYPES:
        case = case_of(loss, SHAPE, dtype, device, "none")
        prediction, *others = draw(case).values()
        places = torch.zeros(SHAPE, dtype=torch.bool, device=device)
        places[0, 3] = places[2, 10:30] = places[-1, -1] = True
        prediction[places] = math.nan
        assert torch.equal(function_of(loss, "none")(prediction, *others).isnan(), places)
        assert function_of(loss, "mean")(prediction, *others).isnan()


def test_function_has_the_defaults_of_the_spec(loss, device):
    spec = LOSSES[loss]
    defaults = spec.resolve({})
    operands = draw(case_of(loss, SHAPE, "float32", device, parameters=defaults)).values()
    reduction = inspect.signature(spec.loss).parameters["reduction"].default
    explicit = spec.loss(*operands, reduction=reduction, **defaults)
    assert not explicit.isnan().any()
    assert torch.equal(spec.loss(*operands), explicit)
    assert torch.equal(spec.loss_with_grad(*operands)[0], explicit)


def test_module_gives_the_result_of_its_function(loss, device):
    spec = LOSSES[loss]
    module = getattr(nn, spec.module.__name__)
    for reduction, parameters in itertools.product(REDUCTIONS, (PARAMETERS[loss], {})):
        resolved = spec.resolve(parameters)
        operands = draw(case_of(loss, SHAPE, "float32", device, parameters=resolved)).values()
        instance = module(reduction=reduction, **parameters)
        expected = spec.loss(*operands, reduction=reduction, **parameters)
        assert torch.equal(instance(*operands), expected)
        for name, value in {"reduction": reduction, **resolved}.items():
            assert getattr(instance, name) == value
            assert name in repr(instance)
        assert torch.equal(module(**parameters)(*operands), spec.loss(*operands, **parameters))


@pytest.mark.parametrize("other", [0, pytest.param(1, marks=SLOW)])
def test_points_and_sizes_pass_their_checks(loss, other, device):
    """With the parameters of the tests and with the defaults, the reductions in turn."""
    implementation = find_implementation("custom")
    first = [*LOSSES].index(loss) + other
    dtype = ("float32", "bfloat16")[first % 2]
    for number, reduction in enumerate(REDUCTIONS, first):
        parameters = (None, LOSSES[loss].resolve({}))[number % 2]
        case = case_of(loss, (8, 24), dtype, device, reduction, parameters=parameters)
        results = put(case, implementation, checks=AT_EVERY_POINT)
        with naming(reduction, parameters):
            assert PASS in {result.status for result in results}
            assert [(r.check, r.reason) for r in results if r.status == FAIL] == []
