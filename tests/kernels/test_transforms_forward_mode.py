import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from losscli.losses import reduce
from losscli.truth.tolerances import ELEMENT_ULP, unit_roundoff
from tests.parameters import square

from .losses import (
    MACHINERY,
    PARAMETERS,
    REDUCTIONS,
    close,
    custom,
    make,
    reference,
    torchs,
    with_grad,
)

# torch's own batching rule of clamp's backward, and its first use of forward mode.
pytestmark = [
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]

SHAPES = (((5, 3), (5, 3)), ((5, 3), (3,)), ((3,), (5, 1)), ((2, 1, 3), (4, 1)), ((), ()))
EMPTY = ((0, 3), (3,))
BOTH = (0, 1)


def both(loss: str, reduction: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    return custom(loss, reduction), torchs(loss, reduction)


def operands(shapes: tuple[tuple[int, ...], ...], device: str) -> tuple[Tensor, ...]:
    values = make(torch.float64, device)
    return tuple(map(values, shapes))


def curved(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """One number whose second derivatives mix those of the loss with its incoming gradients."""
    return lambda *given: function(*given).sin().sum()


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_jvp_equals_torchs(loss, reduction, device):
    for shapes in (*SHAPES, EMPTY):
        given = operands(shapes, device)
        tangents = tuple(torch.randn_like(operand) for operand in given)
        ours, theirs = both(loss, reduction)
        close(jvp(ours, given, tangents), jvp(theirs, given, tangents))
        for k in BOTH:  # one of them alone

            def alone(function, k=k):
                def of_one(operand):
                    return function(*(operand if j == k else given[j] for j in BOTH))  # noqa: B023

                return jvp(of_one, given[k : k + 1], tangents[k : k + 1])  # noqa: B023

            close(alone(ours), alone(theirs))


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_jacfwd_and_every_order_of_a_hessian_equal_torchs(loss, reduction, device):
    for shapes in SHAPES:
        given = operands(shapes, device)
        ours, theirs = both(loss, reduction)
        close(jacfwd(ours, BOTH)(*given), jacfwd(theirs, BOTH)(*given))
        expected = hessian(curved(theirs), BOTH)(*given)
        close(hessian(curved(ours), BOTH)(*given), expected)
        for outer in (jacfwd, jacrev):
            for inner in (jacfwd, jacrev):
                close(outer(inner(curved(ours), BOTH), BOTH)(*given), expected)


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_products_of_hessian_and_vector_equal_torchs(loss, reduction, device):
    for shapes in (*SHAPES, EMPTY):
        given = operands(shapes, device)
        vectors = tuple(torch.randn_like(operand) for operand in given)

        def forward_over_reverse(function):
            return jvp(grad(curved(function), BOTH), given, vectors)  # noqa: B023

        def reverse_over_forward(function):
            along = lambda *of: jvp(curved(function), of, vectors)[1]  # noqa: B023, E731
            return grad(along, BOTH)(*given)  # noqa: B023

        def reverse_over_reverse(function):
            value = curved(function)
            return [
                of(value, given, vectors)  # noqa: B023
                for of in (torch.autograd.functional.hvp, torch.autograd.functional.vhp)
            ]

        ours, theirs = both(loss, reduction)
        for product in (forward_over_reverse, reverse_over_forward, reverse_over_reverse):
            close(product(ours), product(theirs))


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_tangents_of_each_sample_equal_torchs(loss, reduction, device):
    input, target = operands(((4, 5, 3), (4, 3)), device)
    direction = torch.randn_like(target[0])

    def mapped(function):
        def of_one(x, y):
            inner = lambda y: grad(curved(function))(x, y)  # noqa: E731
            return jvp(inner, (y,), (direction,)), hessian(curved(function))(x[0], y)

        return vmap(of_one)(input, target)

    ours, theirs = both(loss, reduction)
    close(mapped(ours), mapped(theirs))


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_second_derivatives_are_differentiable_in_what_they_are_linear_in(loss, reduction, device):
    """In the vectors and in the incoming gradient, which functional.hvp relies on."""
    operator = getattr(torch.ops.losscli, f"{loss}_double_backward").default
    settings = (reduction, *PARAMETERS[loss].values())
    given = operands(((3, 2), (2,)), device)
    incoming = torch.randn_like(custom(loss, reduction)(*given))
    leaves = [torch.randn_like(of).requires_grad_() for of in (*given, incoming)]

    def second(*linear):
        return operator(*linear, *given, *settings)

    assert torch.autograd.gradcheck(second, leaves)
    assert torch.autograd.gradgradcheck(second, leaves)
    assert torch.autograd.gradcheck(second, leaves, check_batched_grad=True)


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_with_grad_carries_tangents_in_one_call(loss, reduction, device):
    for shapes in (*SHAPES, EMPTY):
        given = operands(shapes, device)
        scale = make(torch.float64, device, seed=1)(())
        every: tuple[Tensor, ...] = (*given, scale)
        tangents = tuple(torch.randn_like(operand) for operand in every)

        def ours(x, y, scale):
            return with_grad(loss, reduction)(x, y, grad_output=scale)

        def theirs(x, y, scale):
            function = torchs(loss, reduction)
            return function(x, y), scale * grad(lambda *of: function(*of).sum())(x, y)

        close(jvp(ours, every, tangents), jvp(theirs, every, tangents))
        factor = functools.partial(with_grad(loss, reduction), grad_output=-0.3)
        fixed = scale.new_tensor(-0.3)
        close(
            jvp(factor, given, tangents[:2]),
            jvp(lambda x, y: theirs(x, y, fixed), given, tangents[:2]),  # noqa: B023
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_tangents_of_narrow_dtypes_are_rounded_once(reduction, dtype, device):
    values = make(dtype, device)
    given = values((301, 7)), values((7,))
    tangent = values((301, 7)).abs() * (given[0] - given[1]).sign()  # terms of one sign
    got = jvp(lambda x: custom("mse", reduction)(x, given[1]), given[:1], (tangent,))[1]
    exact = 2 * (given[0].double() - given[1].double()) * tangent.double()
    exact = reduce(exact, reduction)
    assert got.dtype == dtype
    allowed = 2 * ELEMENT_ULP * unit_roundoff(dtype)
    assert ((got.double() - exact).abs() <= allowed * exact.abs()).all()


def test_operands_of_other_dtypes_have_tangents_in_their_own(device):
    input = make(torch.float32, device)((5, 3))
    target = torch.arange(3, device=device)
    function = lambda x: custom("hinge")(x, target)  # noqa: E731
    theirs = lambda x: reference("hinge")(x, target)  # noqa: E731
    close(jvp(function, (input,), (input,)), jvp(theirs, (input,), (input,)))
    close(hessian(function)(input), hessian(theirs)(input))


@pytest.mark.parametrize("transform", [grad, jacfwd])
def test_third_derivatives_say_that_they_are_not_supported(transform, device):
    input = make(torch.float64, device)((5,))
    value = curved(lambda x: custom("mse")(x, torch.zeros_like(x)))
    second = lambda x: hessian(value)(x).sum()  # noqa: E731
    with pytest.raises(NotImplementedError, match="third derivatives are not supported"):
        transform(second)(input)


@pytest.mark.parametrize("loss", MACHINERY)
def test_with_grad_refuses_reverse_mode(loss, device):
    input, scale = operands(((5,), ()), device)

    def value(x, scale):
        return with_grad(loss)(x, torch.ones_like(x), grad_output=scale)[1].sum()

    for argument in BOTH:
        with pytest.raises(NotImplementedError, match="cannot be differentiated in reverse mode"):
            grad(value, argument)(input, scale)


def test_strategies_of_the_benchmark_have_tangents(device):
    values = make(torch.float64, device)
    input, target = values((301,)), values((301,))
    operator = torch.ops.losscli_bench.mse.default
    function = lambda x: operator(x, target, "mean", *PARAMETERS["mse"].values(), "tree")  # noqa: E731
    expected = jvp(lambda x: custom("mse")(x, target), (input,), (input,))
    close(jvp(function, (input,), (input,)), expected)
