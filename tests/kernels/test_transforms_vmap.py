import functools
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from losscli.losses import EVERY_LOSS
from losscli.truth.tolerances import VALUE_ULP, unit_roundoff
from tests.parameters import naming, square

from .losses import MACHINERY, REDUCTIONS, close, custom, make, reference, torchs, with_grad

# torch's own batching rule of clamp's backward.
pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")

BATCH = 3
SHAPES = (
    ((5, 4), (5, 4)),
    ((5, 4), (4,)),
    ((4,), (5, 1)),
    ((2, 1, 3), (4, 1)),
    ((), ()),
    ((5, 4), ()),
    ((0, 4), (4,)),
)
"""The shapes of a sample and of its target."""
DIMENSIONS = ((0, 0), (0, None), (None, 0), (1, 0), (2, 1))
"""Along which the two are batches."""
BOTH = (0, 1)


class Calls(TorchDispatchMode):
    """Records the calls of losscli's operators below all transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func.namespace == "losscli":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


def batch(values, shape, dim):
    """A batch along a dimension, the last if there are not as many; or one sample."""
    if dim is None:
        return values(shape)
    return values((BATCH, *shape)).movedim(0, min(dim, len(shape)))


def batches(shapes, dims, device):
    values = make(torch.float64, device)
    operands = [batch(values, *of) for of in zip(shapes, dims, strict=True)]
    dims = tuple(
        None if dim is None else min(dim, len(of)) for of, dim in zip(shapes, dims, strict=True)
    )
    return operands, dims


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_vmap_and_its_gradients_equal_torchs(loss, reduction, device):
    for shapes, dims in itertools.product(SHAPES, DIMENSIONS):
        operands, in_dims = batches(shapes, dims, device)

        def mapped(function):
            return vmap(function, in_dims=in_dims)  # noqa: B023

        def per_sample(function):
            return mapped(grad(lambda *of: function(*of).sin().sum(), argnums=BOTH))

        def of_all(function):
            return grad(lambda *of: mapped(function)(*of).sin().sum(), argnums=BOTH)

        ours, theirs = custom(loss, reduction), torchs(loss, reduction)
        for transform in (mapped, per_sample, of_all):
            with naming(shapes, dims, transform.__name__):
                close(transform(ours)(*operands), transform(theirs)(*operands))


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_nested_vmap_equals_torchs(loss, reduction, device):
    values = make(torch.float64, device)
    input, target = values((5, BATCH, 2, 4)), values((2, 4))

    def nested(function):
        of_one = grad(lambda *of: function(*of).sin().sum(), argnums=BOTH)
        pairs = vmap(vmap(of_one, in_dims=(0, None)), in_dims=(None, 0))
        return vmap(vmap(function, in_dims=(0, None)), in_dims=(1, None), out_dims=-1)(
            input, target
        ), pairs(input, target)

    close(nested(custom(loss, reduction)), nested(torchs(loss, reduction)))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_batch_is_one_call_of_each_operator(reduction, device):
    values = make(torch.float32, device)
    input, target = values((BATCH, 4)), values((4,))
    value = lambda *operands: custom("mse", reduction)(*operands).sum()  # noqa: E731
    with Calls() as calls:
        vmap(grad(value), in_dims=(0, None))(input, target)
        vmap(with_grad("mse", reduction), in_dims=(0, None))(input, target)
    assert calls.names == ["mse", "mse_backward", "mse_with_grad"]


def test_jacobians_of_batched_gradients_equal_torchs(device):
    values = make(torch.float64, device)
    operands = values((5, 4)), values((4,))

    def jacobian(function):
        return torch.autograd.functional.jacobian(function, operands, vectorize=True)

    close(jacobian(custom("mse", "none")), jacobian(reference("mse", "none")))


def each_sample(function: Any, *operands: Tensor) -> Any:
    results = [function(*sample) for sample in zip(*operands, strict=True)]
    if isinstance(results[0], Tensor):
        return torch.stack(results)
    return tuple(map(torch.stack, zip(*results, strict=True)))


@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_with_grad_gives_the_gradient_of_each_sample(loss, reduction, device):
    values = make(torch.float64, device)
    input, target, weight = values((BATCH, 5, 4)), values((4,)), values((BATCH,))
    shared = target.expand(BATCH, 4)
    function = with_grad(loss, reduction)

    def weighted(x, y, grad_output):
        return function(x, y, grad_output=grad_output)

    scaled = functools.partial(function, grad_output=-0.3)
    for one in (function, scaled):
        close(vmap(one, (0, None))(input, target), each_sample(one, input, shared))
        close(vmap(one, (None, 0))(target, input), each_sample(one, shared, input))
    close(
        vmap(weighted, (0, None, 0))(input, target, weight),
        each_sample(weighted, input, shared, weight),
    )
    same = weight[:1].expand(BATCH)
    close(
        vmap(weighted, (0, None, None))(input, target, same[0]),
        each_sample(weighted, input, shared, same),
    )
    if reduction == "none":
        incoming = values((BATCH, 5, 4))
        close(
            vmap(weighted, (0, None, 0))(input, target, incoming),
            each_sample(weighted, input, shared, incoming),
        )


MORE_OPERANDS = ("weighted_mse", "gaussian_nll", "weighted_gaussian_nll")
"""Losses of three and four operands."""


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MORE_OPERANDS)
def test_rules_serve_any_number_of_operands(loss, reduction, device):
    """The first and every second operand is a batch; each has a shape of its own."""
    values, spec = make(torch.float64, device), EVERY_LOSS[loss]
    operator = getattr(torch.ops.losscli, loss).default
    settings = (reduction, *spec.resolve({}).values())
    dims = tuple(None if k % 2 else 0 for k in range(len(spec.operands)))
    shapes = ((5, 1, 2), (4, 2), (), (2,))
    given = [batch(values, *of).abs() + 0.5 for of in zip(shapes, dims, strict=False)]
    every = [
        each if dim == 0 else each.expand(BATCH, *each.shape)
        for each, dim in zip(given, dims, strict=True)
    ]
    incoming = values(torch.broadcast_shapes(*shapes) if reduction == "none" else ())
    places = tuple(range(len(dims)))

    def value(*of):
        return operator(*of, *settings)

    def total(*of):
        return (value(*of) * incoming).sum()

    def squares(*of):
        return torch.stack([(each**2).sum() for each in grad(total, places)(*of)]).sum()

    last = places[-1:]
    with_gradient = getattr(torch.ops.losscli, f"{loss}_with_grad").default
    for function in (
        value,
        grad(total, places),
        grad(total, last),
        grad(squares, places),
        lambda *of: with_gradient(*of, *settings, None, 0.3),
    ):
        close(vmap(function, dims)(*given), each_sample(function, *every))


def test_an_incoming_gradient_of_another_shape_is_refused(device):
    input = make(torch.float32, device)((BATCH, 4))
    operator = torch.ops.losscli.mse_backward.default

    def backward(x, grad_output):
        return operator(grad_output, x, x, "mean", [True, True])

    for grad_output in (input, input[0]):
        with pytest.raises(RuntimeError, match="shape"):
            vmap(backward, (0, 0 if grad_output is input else None))(input, grad_output)


DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize(
    ("first", "second", "shapes"),
    square(DTYPES, DTYPES, (((5, 4), ()), ((), ()), ((5, 4), (5, 4)))),
    ids=str,
)
def test_vmap_gives_the_dtypes_of_one_sample(first, second, shapes, device):
    dtypes = (first, second)
    operands = [make(dtype, device)((BATCH, *of)) for of, dtype in zip(shapes, dtypes, strict=True)]
    for reduction, dims in itertools.product(REDUCTIONS, ((0, 0), (0, None), (None, 0))):
        given = [
            operand if dim == 0 else operand[0] for operand, dim in zip(operands, dims, strict=True)
        ]
        every = [
            operand if dim == 0 else operand[:1].expand_as(operand)
            for operand, dim in zip(operands, dims, strict=True)
        ]
        function = custom("smooth_l1", reduction)
        gradient = grad(lambda *of: function(*of).sum(), argnums=BOTH)  # noqa: B023
        for one in (function, gradient, with_grad("smooth_l1", reduction)):
            close(vmap(one, dims)(*given), each_sample(one, *every))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduced_losses_of_a_batch_are_as_accurate_as_the_gate_asks(dtype, reduction, device):
    values = make(dtype, device)
    size = 100_003 if reduction == "mean" else 1009
    input, target = values((BATCH, size)), values((size,))
    got = vmap(custom("mse", reduction), (0, None))(input, target)
    exact = vmap(reference("mse", reduction), (0, None))(input.double(), target.double())
    error = ((got.double() - exact) / exact).abs().max().item()
    assert error <= 2 * VALUE_ULP * unit_roundoff(dtype)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_elements_that_overflow_16_bits_do_not_spoil_a_batch(reduction, device):
    input = torch.zeros(BATCH, 8, dtype=torch.bfloat16, device=device)
    input[:, 0] = 2e19
    got = vmap(custom("mse", reduction))(input, -input)
    assert torch.equal(got, each_sample(custom("mse", reduction), input, -input))
    half = torch.zeros(BATCH, 8, dtype=torch.float16, device=device)
    half[:, 0] = 320
    assert vmap(custom("mse"))(half, torch.zeros_like(half)).tolist() == [12800.0] * BATCH


def test_the_scale_of_a_mean_does_not_underflow_in_a_batch(device):
    input = make(torch.float16, device)((BATCH, 70_001))
    target = torch.zeros_like(input)
    scaled = lambda x, y: custom("mse")(x, y) * 1024  # noqa: E731
    gradient = vmap(grad(scaled))(input, target)
    exact = each_sample(grad(scaled), input, target)
    assert torch.equal(gradient, exact)
    assert exact.count_nonzero() == input.count_nonzero()


def test_autocast_gives_float32_in_a_batch(device):
    values = make(torch.float16, device)
    input, target = values((BATCH, 5)), values((BATCH, 5))
    with torch.autocast(device, dtype=torch.bfloat16):
        for reduction in REDUCTIONS:
            got = vmap(custom("mse", reduction))(input, target)
            close(got, each_sample(custom("mse", reduction), input, target))
            assert got.dtype == torch.float32


def test_integers_are_mapped_as_targets(device):
    input = make(torch.float32, device)((BATCH, 4))
    target = torch.arange(4, device=device)
    close(
        vmap(grad(custom("hinge")), (0, None))(input, target),
        vmap(grad(reference("hinge")), (0, None))(input, target),
    )


def test_a_loop_of_samples_has_the_bits_of_elements_in_a_batch(device):
    values = make(torch.float32, device)
    input, target = values((BATCH, 5, 4)), values((BATCH, 4))
    for loss in MACHINERY:
        function = custom(loss, "none")
        assert torch.equal(vmap(function)(input, target), each_sample(function, input, target))
