import itertools
import math
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

from losscli.functional import binary_cross_entropy_with_grad
from losscli.losses import LOSSES, REDUCTIONS
from losscli.losses.fields import Parameter
from tests.parameters import naming

from .losses import MACHINERY, PARAMETERS, custom

ONES = torch.ones(3, 4)

AFTER_ANOTHERS_ERROR = """
import time, torch
from losscli.functional import mse_loss
x = torch.rand(9, device="cuda")
mse_loss(x, x)
torch.cuda.synchronize()
x[torch.tensor([99], device="cuda")]
time.sleep(1)
try:
    mse_loss(x, x)
except RuntimeError as error:
    print(error)
"""


NAN, INFINITY = math.nan, math.inf
WRONG_SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    *((loss, {"reduction": "average"}, "'none', 'mean' or 'sum', but is 'a") for loss in MACHINERY),
    *(("smooth_l1", {"beta": v}, "beta must be at least 0, but") for v in (-0.1, NAN, INFINITY)),
    ("hinge", {"margin": NAN}, "margin must be a finite number, but is nan"),
    *(("huber", {"delta": v}, "delta must be above 0, but is") for v in (0.0, -1.0, NAN)),
    *(
        ("quantile", {"quantile": v}, "quantile must be above 0 and below 1, but is")
        for v in (0.0, 1.0, -0.1, NAN)
    ),
]


def test_settings_that_a_loss_does_not_have_are_refused():
    for loss, settings, message in WRONG_SETTINGS:
        with naming(loss, settings), pytest.raises(ValueError, match=message):
            custom(loss, **settings)(ONES, ONES)


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        (loss, p.name)
        for loss in LOSSES
        for p in LOSSES[loss].parameters
        # What is no interval is refused by the public functions alone.
        if type(p) is Parameter and not p.is_integer
    ],
)
def test_operator_refuses_the_values_of_a_parameter_that_the_spec_refuses(loss, name):
    (parameter,) = (each for each in LOSSES[loss].parameters if each.name == name)
    operator = getattr(torch.ops.losscli, loss)
    operands = [ONES] * len(LOSSES[loss].operands)
    beside = [math.nextafter(end, to) for end in parameter.ends for to in (-math.inf, math.inf)]
    for value in (*parameter.ends, *beside, parameter.default, math.inf, -math.inf, math.nan):
        settings = {**PARAMETERS[loss], name: value}.values()
        if complaint := parameter.check(value):
            with pytest.raises(ValueError, match=re.escape(f"{loss}: {complaint}")):
                operator(*operands, "mean", *settings)
        else:
            operator(*operands, "mean", *settings)


@pytest.mark.parametrize("name", ["input", "target"])
def test_probability_outside_its_range_is_refused_on_the_cpu(name):
    message = rf"all elements of {name} must be between 0 and 1, but the one at \[1, 2\] is "
    functions = (LOSSES["binary_cross_entropy"].loss, binary_cross_entropy_with_grad)
    weights: tuple[dict[str, torch.Tensor], ...] = ({}, {"weight": torch.ones(3, 4)})
    for value in (-0.5, 1.5, math.nan, math.inf):
        operands = {"input": torch.full((3, 4), 0.5), "target": torch.full((3, 4), 0.5)}
        operands[name][1, 2] = value
        for reduction, function, weight in itertools.product(REDUCTIONS, functions, weights):
            with naming(value, reduction, function), pytest.raises(RuntimeError, match=message):
                function(**operands, reduction=reduction, **weight)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["input", "target"])
def test_probability_outside_its_range_has_a_loss_and_gradients_of_nan_on_a_gpu(name):
    operands = {each: torch.full((4,), 0.5, device="cuda") for each in ("input", "target")}
    operands[name][1] = 1.5
    leaves = [each.requires_grad_() for each in operands.values()]
    loss = LOSSES["binary_cross_entropy"].loss(*leaves, reduction="none")
    for result in (loss, *torch.autograd.grad(loss.sum(), leaves)):
        assert result.isnan().tolist() == [False, True, False, False]


def test_nan_of_a_weight_is_no_error_of_the_probabilities():
    weight = torch.tensor([math.nan, 1.0])
    half = torch.full((2,), 0.5)
    assert LOSSES["binary_cross_entropy"].loss(half, half, weight=weight).isnan()


@pytest.mark.parametrize("loss", MACHINERY)
def test_operands_that_a_loss_does_not_take_are_refused(loss):
    function, with_grad = custom(loss), LOSSES[loss].loss_with_grad
    with pytest.raises(TypeError, match=r"are Long and Long; convert with \.float\(\)"):
        function(ONES.long(), ONES.long())
    with pytest.raises(TypeError, match=r"an input of Long has no gradient; .*\.float\(\)"):
        with_grad(ONES.long(), ONES)
    with pytest.raises(TypeError, match="must be float32, float64, float16 or bfloat16"):
        function(ONES.to(torch.complex64), ONES)
    with pytest.raises(RuntimeError, match=r"\[3, 4\] and target of shape \[3\] do not broadcast"):
        function(ONES, torch.ones(3))
    with pytest.raises(RuntimeError, match=r"must be one element, but has shape \[2\]"):
        with_grad(ONES, ONES, grad_output=torch.ones(2))
    with pytest.raises(NotImplementedError, match="input must be a dense tensor"):
        function(ONES.to_sparse(), ONES)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", MACHINERY)
def test_operands_and_incoming_gradients_on_different_devices_are_refused(loss):
    with pytest.raises(RuntimeError, match="on one device, but are on cuda:0 and cpu"):
        custom(loss)(ONES.cuda(), ONES)
    op = getattr(torch.ops.losscli, f"{loss}_backward").default
    settings = ("mean", *PARAMETERS[loss].values())
    with pytest.raises(RuntimeError, match="operands' device cuda:0, but is on cpu"):
        op(torch.ones(()), ONES.cuda(), ONES.cuda(), *settings, [True, False])


@pytest.mark.gpu
def test_cuda_error_of_earlier_work_is_not_blamed_on_the_loss():
    """In a process of its own: CUDA is of no use after an assertion on the device."""
    command = [sys.executable, "-c", AFTER_ANOTHERS_ERROR]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith("an error of work that was launched earlier was found by mse")
    assert "CUDA_LAUNCH_BLOCKING=1" in done.stdout
