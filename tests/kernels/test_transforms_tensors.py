"""Kinds of tensors and of training steps: autocast, checkpointing, subclasses, fake tensors."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, grad, jvp, vmap
from torch.nn import functional as theirs
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from losscli import nn
from tests.parameters import square

from .losses import MACHINERY, REDUCTIONS, close, custom, make, with_grad

# PyTorch's own, at the first use of forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.parametrize(
    ("first", "second", "autocast"),
    square(FLOATING, FLOATING, (torch.float16, torch.bfloat16)),
    ids=str,
)
def test_autocast_gives_the_dtypes_of_torchs_losses(first, second, autocast, device):
    dtypes = (first, second)
    input, target = (make(dtype, device)((7,)) for dtype in dtypes)
    with torch.autocast(device, dtype=autocast):
        for ours, own in (
            (custom("mse"), theirs.mse_loss),
            (custom("smooth_l1"), theirs.smooth_l1_loss),
        ):
            assert ours(input, target).dtype == own(input, target).dtype
        # torch has no hinge loss of this form; its hinge_embedding_loss is of float32 as well.
        embedding = theirs.hinge_embedding_loss(input, torch.ones_like(input))
        assert custom("hinge")(input, input).dtype == embedding.dtype
        expected = torch.float64 if torch.float64 in dtypes else torch.float32
        for loss in MACHINERY:
            value, gradient = with_grad(loss)(input, target)
            assert value.dtype == expected
            assert gradient.shape == input.shape
            leaf = input.detach().requires_grad_()
            custom(loss)(leaf, target).backward()
            assert leaf.grad.dtype == input.dtype
            assert jvp(custom(loss), (input, target), (input, target))[1].dtype == expected


class Model(torch.nn.Module):
    def __init__(self, loss: torch.nn.Module, device: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3, dtype=torch.float64, device=device)
        self.loss = loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        result: Tensor = self.loss(self.layer(x), y)
        return result


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_activation_checkpointing_gives_the_same_gradients(reduction, reentrant, device):
    model = Model(nn.SmoothL1Loss(reduction=reduction), device)
    values = make(torch.float64, device)
    x, y = values((5, 4)).requires_grad_(), values((3,)).requires_grad_()
    tensors = (x, y, *model.parameters())

    def gradients(function):
        for tensor in tensors:
            tensor.grad = None
        function(x, y).sum().backward()
        return [tensor.grad for tensor in tensors]

    expected = gradients(model)
    got = gradients(lambda *of: checkpoint(model, *of, use_reentrant=reentrant))
    for ours, want in zip(got, expected, strict=True):
        assert torch.equal(ours, want)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_functional_call_gives_gradients_of_each_sample(reduction, device):
    ours, own = (
        Model(module(reduction=reduction), device)
        for module in (nn.SmoothL1Loss, torch.nn.SmoothL1Loss)
    )
    values = make(torch.float64, device)
    x, y = values((6, 4)), values((6, 3))

    def per_sample(model):
        parameters = {name: value.detach() for name, value in model.named_parameters()}

        def of_one(parameters, x, y):
            value: Tensor = functional_call(model, parameters, (x, y)).sum()
            return value

        return vmap(grad(of_one), (None, 0, 0))(parameters, x, y)

    close(per_sample(ours), per_sample(own))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_meta_and_fake_tensors_have_the_form_of_real_ones(loss, reduction, device):
    def forms(of):
        x, y = of(4, 6).t().requires_grad_(), of(4).requires_grad_()
        value = custom(loss, reduction)(x, y)
        first = torch.autograd.grad(value.sum(), (x, y), create_graph=True)
        second = torch.autograd.grad(first[0].sum(), (x, y))
        mapped = vmap(grad(lambda x, y: custom(loss, reduction)(x, y).sum()))(x, x)
        duals = jvp(custom(loss, reduction), (x, y), (x.detach(), y.detach()))
        found = (value, first, second, mapped, duals, with_grad(loss, reduction)(x, y))
        return tree_map(lambda t: (t.shape, t.dtype, t.stride()), found)

    expected = forms(lambda *shape: torch.ones(*shape, device=device))
    assert forms(lambda *shape: torch.ones(*shape, device="meta")) == expected
    with FakeTensorMode():
        assert forms(lambda *shape: torch.ones(*shape, device=device)) == expected


class Named(torch.Tensor):
    """A subclass with the default ``__torch_function__``, which keeps the class."""


class Wrapped(torch.Tensor):
    """A subclass with ``__torch_dispatch__``: holds another tensor and records what is called."""

    held: Tensor
    calls: ClassVar[list[str]] = []

    @staticmethod
    def __new__(cls, held: Tensor) -> "Wrapped":
        made: Wrapped = torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=held.device
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        def unwrap(value: Any) -> Any:
            return value.held if isinstance(value, Wrapped) else value

        if func.namespace == "losscli":
            cls.calls.append(func._opname)
        result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(lambda t: Wrapped(t) if isinstance(t, Tensor) else t, result)


@pytest.mark.parametrize("loss", MACHINERY)
def test_subclasses_with_torch_function_keep_their_class(loss, device):
    values = make(torch.float64, device)
    x, y = values((6, 4)), values((4,))
    result = custom(loss)(x.as_subclass(Named), y)
    assert type(result) is Named
    leaf = x.as_subclass(Named).requires_grad_()
    custom(loss)(leaf, y).backward()
    expected = grad(custom(loss))(x, y)
    assert torch.equal(leaf.grad.as_subclass(Tensor), expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", MACHINERY)
def test_subclasses_with_torch_dispatch_see_each_operator(loss, reduction, device):
    values = make(torch.float64, device)
    x, y = values((6, 4)), values((4,))

    def derivatives(x, y):
        x, y = x.requires_grad_(), y.requires_grad_()
        value = custom(loss, reduction)(x, y).sin().sum()
        first = torch.autograd.grad(value, (x, y), create_graph=True)
        return value, first, torch.autograd.grad(first[0].square().sum(), (x, y))

    expected = derivatives(x, y)
    Wrapped.calls.clear()
    got = derivatives(Wrapped(x.detach()), Wrapped(y.detach()))
    assert Wrapped.calls[:3] == [loss, f"{loss}_backward", f"{loss}_double_backward"]
    assert all(isinstance(tensor, Wrapped) for tensor in (got[0], *got[1], *got[2]))
    close(tree_map(lambda t: t.held, got), expected)
