"""Integration with PyTorch: opcheck, torch.compile, autocast, torch.func, modules."""

import pytest
import torch

from losscli import nn
from losscli.losses import LOSSES
from tests.parameters import SLOW, square

from .layouts import LAYOUTS
from .losses import MACHINERY, PARAMETERS, REDUCTIONS, custom, make, reference

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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", MACHINERY)
def test_autocast_computes_in_float32_as_for_pytorchs_losses(loss, dtype, device):
    values = make(dtype, device)
    input, target = values((9, 4)).requires_grad_(), values((4,))
    with torch.autocast(device, dtype=dtype):
        result = custom(loss)(input, target)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, reference(loss)(input.float(), target.float()))
    result.backward()
    assert input.grad.dtype == dtype


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
