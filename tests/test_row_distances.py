"""The distances between two sets of logits equal their formulas in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from losscli import functional, nn
from losscli.extension import row_functors
from losscli.losses import FUNCTOR_LOSSES, RowFunctorSpec

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
REDUCTIONS = ("none", "mean", "sum")
# One class, less than a vector, a vector and a tail, a warp and a tail, more than a block reads at
# once, more than shared memory holds.
CLASSES = (1, 3, 7, 31, 33, 1000, 4097, 70001)

# torch's own advice, of what forward mode imports.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # The kernels are what is tested, and not PyTorch's operators in their place.
    monkeypatch.setattr(row_functors, "PROVEN", ["cpu", "cuda"])
    return str(request.param)


@pytest.fixture(params=FUNCTOR_LOSSES.values(), ids=lambda spec: spec.name)
def spec(request: pytest.FixtureRequest) -> RowFunctorSpec:
    found: RowFunctorSpec = request.param
    return found


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pair(
    *shape: int, device: str, dtype: torch.dtype = torch.float32, scale: float = 3.0
) -> tuple[Tensor, Tensor]:
    """Draw two sets of logits that want a gradient."""
    first, second = (
        (scale * torch.randn(shape, device=device)).to(dtype).requires_grad_() for _ in range(2)
    )
    return first, second


def both(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    """Return a loss and the gradients of leaves, for incoming gradients that differ by row."""
    incoming = (torch.arange(loss.numel(), device=loss.device) % 5 - 2.5).view(loss.shape)
    return (loss.detach(), *torch.autograd.grad(loss, leaves, incoming.to(loss.dtype)))


def examples(spec: RowFunctorSpec) -> dict[str, Any]:
    return {parameter.name: parameter.example for parameter in spec.parameters}


def judge(
    spec: RowFunctorSpec,
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    reduction: str = "none",
    slack: float = 0.0,
    **named: float,
) -> None:
    """Compare loss and gradients with those of the formula in float64, but for ``slack``."""
    settings = {parameter.name: parameter.default for parameter in spec.parameters} | named
    got = both(spec.loss(input, target, mask=mask, reduction=reduction, **named), input, target)
    exact = [logits.detach().double().requires_grad_() for logits in (input, target)]
    loss = spec.reference(exact[0], exact[1], mask, reduction, *settings.values())
    eps = torch.finfo(input.dtype).eps
    # The sums are of float32 at least; a probability's error is that of its exponent.
    relative = 512 * eps if input.dtype.itemsize > 2 else 4 * eps
    for ours, due in zip(got, both(loss, *exact), strict=True):
        assert ours.dtype == input.dtype
        assert ours.shape == due.shape
        largest = due.nan_to_num().abs().max().item() if due.numel() else 0.0
        absolute = relative * largest + slack + eps**2
        assert_close(ours.double(), due, rtol=relative, atol=absolute, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("classes", CLASSES)
def test_values_and_gradients_equal_the_formula(
    spec: RowFunctorSpec, classes: int, dtype: torch.dtype, device: str
) -> None:
    input, target = pair(5, classes, device=device, dtype=dtype)
    judge(spec, input, target)
    judge(spec, input, target, **examples(spec))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(7,), (4, 7), (2, 3, 4, 5), (300, 65)])
def test_reductions_and_masks(
    spec: RowFunctorSpec, shape: tuple[int, ...], reduction: str, device: str
) -> None:
    input, target = pair(*shape, device=device)
    for mask in (None, torch.rand(shape[:-1], device=device) < 0.6):
        judge(spec, input, target, mask, reduction)


def test_a_mask_that_keeps_nothing(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(3, 4, device=device)
    mask = torch.zeros(3, dtype=torch.bool, device=device)
    for reduction, due in (("mean", float("nan")), ("sum", 0.0), ("none", 0.0)):
        loss = spec.loss(input, target, mask=mask, reduction=reduction)
        assert_close(loss, torch.full_like(loss, due), equal_nan=True)
        for gradient in torch.autograd.grad(loss.sum(), (input, target)):
            assert not gradient.any()


def test_rows_that_the_mask_leaves_out_are_not_read(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(4, 9, device=device)
    with torch.no_grad():
        input[1] = float("nan")
    mask = torch.tensor([True, False, True, True], device=device)
    judge(spec, input, target, mask, "mean")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [0.05, 100.0])
def test_small_and_large_logits(
    spec: RowFunctorSpec, scale: float, dtype: torch.dtype, device: str
) -> None:
    input, target = pair(6, 50, device=device, scale=scale)
    shifted = [(logits.detach() + shift) for logits, shift in ((input, 3 * scale), (target, 0))]
    first, second = (logits.to(dtype).requires_grad_() for logits in shifted)
    if scale < 1:
        # Differences of nearly equal distributions have few digits: the absolute error counts.
        ours = both(spec.loss(first, second, reduction="none"), first, second)
        exact = [logits.detach().double().requires_grad_() for logits in (first, second)]
        settings = [parameter.default for parameter in spec.parameters]
        due = both(spec.reference(exact[0], exact[1], None, "none", *settings), *exact)
        for got, expected in zip(ours, due, strict=True):
            assert_close(got.double(), expected, rtol=0.02, atol=2e-6)
    else:
        # A gradient is a difference of logarithms as large as the logits, each of them rounded.
        wide = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
        judge(spec, first, second, slack=8 * wide * 4 * scale)


def test_impossible_classes_of_both_add_nothing(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(4, 9, device=device)
    with torch.no_grad():
        input[:, 2:4] = target[:, 2:4] = float("-inf")
    judge(spec, input, target)
    loss = spec.loss(input, target)
    assert loss.isfinite()
    for gradient in torch.autograd.grad(loss, (input, target)):
        assert not gradient[:, 2:4].any()


@pytest.mark.parametrize(
    "view",
    {
        "transposed": lambda x: x.transpose(0, 1),
        "every other class": lambda x: x[..., ::2],
        "rows with a pitch": lambda x: x[..., :11],
        "rows that start anywhere": lambda x: x[..., 1:],
        "expanded": lambda x: x[:1].expand(4, -1),
        "flipped": lambda x: x.flip(0),
    }.items(),
    ids=lambda item: item[0],
)
def test_strides_do_not_matter(
    spec: RowFunctorSpec, view: tuple[str, Callable[[Tensor], Tensor]], device: str
) -> None:
    input, target = pair(6, 20, device=device)
    judge(spec, view[1](input), view[1](target.clone()))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(0, 4), (0, 3, 4)])
def test_no_rows(spec: RowFunctorSpec, shape: tuple[int, ...], reduction: str, device: str) -> None:
    judge(spec, *pair(*shape, device=device), None, reduction)


def test_one_operand_may_want_no_gradient(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(4, 9, device=device)
    due = torch.autograd.grad(spec.loss(input, target), (input, target))
    for index in range(2):
        given = [input, target]
        given[1 - index] = given[1 - index].detach()
        got = torch.autograd.grad(spec.loss(*given), given[index])[0]
        assert torch.equal(got, due[index])


def test_other_dtypes_are_promoted(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(4, 9, device=device)
    half = input.detach().half().requires_grad_()
    loss = spec.loss(half, target)
    assert loss.dtype == torch.float32
    gradients = torch.autograd.grad(loss, (half, target))
    assert [gradient.dtype for gradient in gradients] == [torch.float16, torch.float32]
    assert_close(loss, spec.loss(half.float(), target))


def test_bits_are_the_same_from_run_to_run(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(40, 5000, device=device)
    first, *others = (both(spec.loss(input, target), input, target) for _ in range(3))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_derivatives_of_both_orders(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(3, 5, device=device, dtype=torch.float64, scale=1.0)
    mask = torch.tensor([True, False, True], device=device)

    def loss(input: Tensor, target: Tensor) -> Tensor:
        return spec.loss(input, target, mask=mask, reduction="none", **examples(spec))

    assert torch.autograd.gradcheck(loss, (input, target), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(loss, (input, target))


def test_transforms(spec: RowFunctorSpec, device: str) -> None:
    input, target = (x.detach() for x in pair(3, 5, device=device, dtype=torch.float64))
    settings = [parameter.default for parameter in spec.parameters]

    def formula(input: Tensor, target: Tensor) -> Tensor:
        return spec.reference(input, target, None, "mean", *settings)

    for transform in (
        torch.func.vmap,
        torch.func.grad,
        torch.func.hessian,
        lambda f: torch.func.vmap(torch.func.grad(f)),
        lambda f: lambda x, t: torch.func.jvp(lambda y: f(y, t), (x,), (x + 1,))[1],
    ):
        assert_close(transform(spec.loss)(input, target), transform(formula)(input, target))


def test_batched_gradients(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(3, 5, device=device, dtype=torch.float64)
    rows = spec.loss(input, target, reduction="none")
    due = torch.stack(
        [torch.autograd.grad(row, input, retain_graph=True)[0] for row in rows.unbind()]
    )
    ones = torch.eye(3, dtype=torch.float64, device=device)
    got = torch.autograd.grad(rows, input, ones, is_grads_batched=True)[0]
    assert_close(got, due)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_operators_pass_opcheck(spec: RowFunctorSpec, reduction: str, device: str) -> None:
    input, target = pair(4, 5, device=device)
    mask = torch.tensor([True, False, True, True], device=device)
    arguments = (input, target, mask, reduction, *examples(spec).values())
    operators = torch.ops.losscli
    torch.library.opcheck(getattr(operators, spec.name).default, arguments)
    grad_output = torch.rand((4,) if reduction == "none" else (), device=device)
    plain = (input.detach(), target.detach(), *arguments[2:])
    backward = getattr(operators, f"{spec.name}_backward").default
    torch.library.opcheck(backward, (grad_output, *plain, [True, False]))


def test_compiled_step_calls_the_kernels(spec: RowFunctorSpec, device: str) -> None:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    torch._dynamo.reset()
    seen: list[str] = []

    def backend(module: torch.fx.GraphModule, example: list[Tensor]) -> Any:
        seen.extend(str(node.target) for node in module.graph.nodes)
        return make_boxed_func(module.forward)

    def step(input: Tensor, target: Tensor) -> Tensor:
        return spec.loss(2 * input, target)

    compiled = torch.compile(step, fullgraph=True, backend=aot_autograd(fw_compiler=backend))
    input, target = pair(3, 5, device=device)
    got, due = (both(function(input, target), input, target) for function in (compiled, step))
    for ours, theirs in zip(got, due, strict=True):
        assert_close(ours, theirs)
    assert f"losscli.{spec.name}.default" in seen
    assert f"losscli.{spec.name}_backward.default" in seen


def test_module_equals_the_function(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(4, 5, device=device)
    mask = torch.tensor([True, False, True, True], device=device)
    module = getattr(nn, spec.module.__name__)(reduction="sum", **examples(spec))
    assert isinstance(module, torch.nn.Module)
    due = spec.loss(input, target, mask=mask, reduction="sum", **examples(spec))
    assert torch.equal(module(input, target, mask), due)
    assert "reduction='sum', temperature=1.3" in repr(module)


def test_functions_are_exported(spec: RowFunctorSpec) -> None:
    assert getattr(functional, spec.name) is spec.loss
    assert spec.name in functional.__all__


def test_wrong_calls_say_what_is_wrong(spec: RowFunctorSpec, device: str) -> None:
    input, target = pair(4, 5, device=device)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        spec.loss(input, target, temperature=0.0)
    with pytest.raises(ValueError, match="reduction must be"):
        spec.loss(input, target, reduction="batchmean")
    with pytest.raises(RuntimeError, match="logits of one shape"):
        spec.loss(input, target[:, :4])
    with pytest.raises(RuntimeError, match="mask must be bool of shape"):
        spec.loss(input, target, mask=torch.ones(5, device=device))
    with pytest.raises(TypeError, match="takes float32"):
        spec.loss(input.detach().long(), target.detach().long())
