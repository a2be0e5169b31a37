import itertools
import math
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from losscli import losses
from losscli.cases.case import Case
from losscli.losses import (
    EVERY_LOSS,
    EVERY_ROW_LOSS,
    LOSSES,
    REDUCTIONS,
    WEIGHTED,
    Parameter,
    Tolerance,
    aten,
)
from losscli.losses.rows.forms import NO_INDEX
from losscli.losses.rows.spec import counts_of_classes
from losscli.truth.inputs import make_inputs
from tests.handmade import case_of
from tests.parameters import naming


@pytest.mark.parametrize("spec", LOSSES.values(), ids=LOSSES)
def test_operands_have_distinct_names_and_the_first_a_gradient(spec):
    names = [operand.name for operand in spec.operands]
    assert len(set(names)) == len(names)
    assert spec.operands[0].differentiable


BELOW, ABOVE = math.nextafter(1, 0), math.nextafter(1, 2)
UNIT = {"minimum": 0.0, "maximum": 1.0}


@pytest.mark.parametrize(
    ("bounds", "allowed", "refused", "domain"),
    [
        ({"minimum": -math.inf}, (-1e300, 0.0, 1e300), (), "a finite number"),
        ({"minimum": 1.0}, (1.0, 1e300), (BELOW,), "at least 1"),
        ({"minimum": 1.0, "open": True}, (ABOVE, 1e300), (1.0, BELOW), "above 1"),
        ({"minimum": -math.inf, "maximum": 1.0}, (-1e300, 1.0), (ABOVE,), "at most 1"),
        (UNIT, (0.0, 1.0), (-5e-324, ABOVE), "at least 0 and at most 1"),
        (UNIT | {"open": True}, (5e-324, BELOW), (0.0, 1.0), "above 0 and below 1"),
        (UNIT | {"is_switch": True}, (0.0, 1.0), (0.5, 5e-324, BELOW, ABOVE), "0 or 1"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_parameter_takes_the_finite_numbers_of_its_domain(bounds, allowed, refused, domain):
    parameter = Parameter("alpha", default=0.5, description="", example=0.7, **bounds)
    assert [parameter.check(value) for value in allowed] == [None] * len(allowed)
    for value in (*refused, math.inf, -math.inf, math.nan):
        assert parameter.check(value) == f"alpha must be {domain}, but is {value:g}"


@pytest.mark.parametrize(
    ("factor", "reason"), [(0.5, "why"), (math.inf, "why"), (math.nan, "why"), (2.0, "")]
)
def test_tolerance_of_a_loss_loosens_and_has_a_reason(factor, reason):
    with pytest.raises(ValueError, match="tolerance"):
        Tolerance(factor, reason)
    assert Tolerance(2.0, "the logarithm of a sum cancels").factor == 2.0


@pytest.mark.parametrize(
    ("dtypes", "asked", "computed"),
    [
        (("float32", "bfloat16"), ("input",), ("float32", "bfloat16")),
        (("float32", "bfloat16"), ("input", "target"), ("float32", "float32")),
        (("bfloat16", "float32"), ("input",), ("float32", "float32")),
        (("float16", "bfloat16"), ("target",), ("float32", "float32")),
        (("bfloat16", "float32"), (), ("bfloat16", "float32")),
        (("float32", "int64"), ("input",), ("float32", "int64")),
    ],
    ids=lambda each: "-".join(each) or "neither",
)
def test_smooth_l1s_reference_promotes_an_operand_whose_gradient_torch_would_round(
    monkeypatch, dtypes, asked, computed
):
    """On a GPU torch's backward reads both operands in the dtype of the gradient it writes."""
    seen = []
    own = aten.smooth_l1_loss

    def look(input, target, **settings):
        seen.extend([input.dtype, target.dtype])
        return own(input, target, **settings)

    monkeypatch.setattr(aten, "smooth_l1_loss", look)
    operands = {
        name: torch.ones(5, dtype=getattr(torch, dtype)).requires_grad_(name in asked)
        for name, dtype in zip(("input", "target"), dtypes, strict=True)
    }
    loss = LOSSES["smooth_l1"].reference(**operands, reduction="sum", beta=1.0)
    gradients = torch.autograd.grad(loss, [operands[name] for name in asked]) if asked else ()
    assert seen == [getattr(torch, dtype) for dtype in computed]
    assert loss.dtype == torch.promote_types(*(each.dtype for each in operands.values()))
    assert [each.dtype for each in gradients] == [operands[name].dtype for name in asked]


@pytest.mark.parametrize("spec", LOSSES.values(), ids=LOSSES)
def test_a_loss_offers_its_functions_and_its_module_from_its_own_file(spec):
    from losscli import functional, nn

    assert spec.loss is getattr(functional, spec.function_name)
    assert spec.loss_with_grad is getattr(functional, f"{spec.function_name}_with_grad")
    assert issubclass(getattr(nn, spec.module.__name__), spec.module)
    file = f"losscli.losses.elementwise.{spec.name}"
    assert spec.module.__module__ == spec.reference.__module__ == file


COMPARED = {name: spec for name, spec in (LOSSES | WEIGHTED).items() if spec.functional}
"""The losses, with a weight and without, whose reference is not what one writes with PyTorch."""
SIZE = (13, 37)


def operands_of(case: Case) -> dict[str, torch.Tensor]:
    return {
        name: each.detach().clone().requires_grad_(name in case.spec.differentiable)
        for name, each in make_inputs(case).items()
    }


@pytest.mark.parametrize("spec", COMPARED.values(), ids=COMPARED)
def test_functional_has_the_references_loss_and_gradients_wherever_it_has_numbers(spec):
    examples = {each.name: each.example for each in spec.parameters}
    for parameters, reduction in itertools.product(({}, examples), REDUCTIONS):
        with naming(parameters, reduction):
            assert_functional_is_the_reference(spec, parameters, reduction)


def assert_functional_is_the_reference(spec, parameters, reduction) -> None:
    settings = {"reduction": reduction, **spec.resolve(parameters)}
    drawn: dict[str, Any] = {"dtype": "float64", "distribution": "normal", "scale": 2.0}
    case = case_of(spec.name, SIZE, params=parameters, reduction=reduction, **drawn)
    operands = operands_of(case)
    leaves = [each for each in operands.values() if each.requires_grad]

    def computed(function):
        loss = function(*operands.values(), **settings)
        return loss.detach(), *torch.autograd.grad(loss.sum(), leaves)

    for found, due in zip(computed(spec.functional), computed(spec.reference), strict=True):
        numbers = found.isfinite()
        assert float(numbers.double().mean()) > 0.5
        torch.testing.assert_close(found[numbers], due[numbers], rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("loss", EVERY_LOSS)
def test_a_negative_parameter_that_is_drawn_leaves_a_loss_with_gradients(loss):
    spec = EVERY_LOSS[loss]
    shape = SIZE if spec.takes(SIZE) else (SIZE[0], 3, SIZE[1])
    for parameter in spec.parameters:
        drawn = {each for seed in range(8) for each in parameter.drawn(Random(seed))}
        for value in (each for each in drawn if each < 0):
            with naming({parameter.name: value}):
                params = {parameter.name: value}
                case = case_of(loss, shape, distribution="normal", scale=2.0, params=params)
                operands = operands_of(case)
                result = spec.reference(*operands.values(), reduction="sum", **case.params)
                leaves = [each for each in operands.values() if each.requires_grad]
                gradients = torch.autograd.grad(result, leaves)
                assert any(bool(each.count_nonzero()) for each in gradients)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("ignored", [-100, NO_INDEX])
def test_no_class_of_a_narrow_dtype_is_taken_for_the_ignored_one(dtype, ignored):
    target = torch.tensor([0, 1, 156, 200], dtype=dtype)
    counts = counts_of_classes(torch.zeros(4, 201), target, ignore_index=ignored)
    assert counts.tolist() == [1.0] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", COMPARED.values(), ids=COMPARED)
def test_functional_takes_a_target_of_one_row_and_of_another_dtype(spec, dtype):
    case = case_of(spec.name, SIZE, target_shape=SIZE[-1:])
    operands = {name: each.detach() for name, each in make_inputs(case).items()}
    operands[spec.names[1]] = operands[spec.names[1]].to(dtype)
    prediction = next(iter(operands.values())).requires_grad_()
    loss = spec.functional(*operands.values(), reduction="mean", **spec.resolve({}))
    (gradient,) = torch.autograd.grad(loss, prediction)
    assert (loss.shape, loss.dtype) == ((), torch.float32)
    assert (gradient.shape, gradient.dtype) == (prediction.shape, prediction.dtype)


def test_each_spec_in_a_file_is_a_loss():
    folder = Path(losses.__file__).parent
    made = r"^[A-Z_]+ = (?:element|row|_divergence)_loss\("
    specs = [re.findall(made, file.read_text(), re.MULTILINE) for file in folder.glob("*/*.py")]
    assert sum(map(len, specs)) == len(LOSSES) + sum(
        not each.form_of for each in EVERY_ROW_LOSS.values()
    )
