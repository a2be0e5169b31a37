"""Kinds of tensors and of training steps, and what PyTorch asks of operators: opcheck, autocast."""

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
from losscli.losses import LOSSES
from tests.parameters import SLOW, square

from .layouts import LAYOUTS
from .losses import MACHINERY, PARAMETERS, REDUCTIONS, close, custom, make, reference, with_grad

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
            close(value, reference(loss)(input.to(expected), target.to(expected)))
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


OPCHECK_LAYOUTS = ("same shape", "target one row", "target on both sides", "channels last", "empty")
OPCHECKED = (("mse", "mean", "same shape"), ("smooth_l1", "sum", "same shape"))
"""On each run, besides the layouts of one loss."""


# Reduced losses have one shape and no strides, whatever those of the operands are; how the operands
# lie is the same to all losses.
@pytest.mark.parametrize(
    ("loss", "reduction", "layout"),
    [
        pytest.param(
            *(loss, reduction, layout),
            marks=[]
            if (loss, reduction) == ("hinge", "none") or (loss, reduction, layout) in OPCHECKED
            else [SLOW],
        )
        for loss in MACHINERY
        for reduction in REDUCTIONS
        for layout in OPCHECK_LAYOUTS
    ],
)
def test_each_operator_passes_opcheck(loss, reduction, layout, device):
    input, target = LAYOUTS[layout](make(torch.float32, device))
    if layout == "empty" and reduction == "mean":
        # opcheck takes NaN, the mean of nothing, for a difference.
        input, target = input.new_ones(1), target.new_ones(1)
    settings = (reduction, *PARAMETERS[loss].values())
    leaves = (input.detach().requires_grad_(), target.detach().requires_grad_())
    ops = torch.ops.losscli
    torch.library.opcheck(getattr(ops, loss).default, (*leaves, *settings))
    torch.library.opcheck(getattr(ops, f"{loss}_with_grad").default, (input, target, *settings))
    grad_output = torch.ones_like(custom(loss, reduction)(input, target))
    torch.library.opcheck(
        getattr(ops, f"{loss}_backward").default,
        (grad_output, input, target, *settings, [True, True]),
    )
    torch.library.opcheck(
        getattr(ops, f"{loss}_double_backward").default,
        (input.clone(), target.clone(), grad_output, input, target, *settings),
    )


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize(("loss", "reduction"), square(MACHINERY, REDUCTIONS))
def test_loss_compiles_in_one_graph(loss, reduction, device):
    torch.compiler.reset()
    function = custom(loss, reduction)
    # The eager backend traces forward and backward as every backend does, and needs no compiler.
    compiled = torch.compile(lambda x, y: function(x, y) * 2, fullgraph=True, backend="aot_eager")
    for rows in (12, 15):  # the second shape is traced with symbolic sizes
        values = make(torch.float32, device)
        leaves = values((rows, 7)).requires_grad_(), values((7,)).requires_grad_()
        result, expected = compiled(*leaves), function(*leaves) * 2
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
        incoming = torch.ones_like(result)
        for got, want in zip(
            torch.autograd.grad(result, leaves, incoming),
            torch.autograd.grad(expected, leaves, incoming),
            strict=True,
        ):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("settings", [{"reduction": "average"}, {"beta": -1.0}])
def test_a_module_checks_its_settings_at_once(settings):
    with pytest.raises(ValueError, match="must be"):
        nn.SmoothL1Loss(**settings)


@pytest.mark.parametrize("loss", LOSSES)
def test_parameters_of_kernels_match_the_registry(loss):
    schema = getattr(torch.ops.losscli, loss).default._schema
    names = [argument.name for argument in schema.arguments]
    parameters = [parameter.name for parameter in LOSSES[loss].parameters]
    operands = [operand.name for operand in LOSSES[loss].operands]
    assert names == [*operands, "reduction", *parameters, "site"]
