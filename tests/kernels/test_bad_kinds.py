"""Arguments of another kind than a function takes are named in one sentence, by all functions."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from losscli import functional, nn, sharded
from losscli.losses import CLASS_INDICES, EVERY_ROW_LOSS, LOSSES, ROW_LOSSES, Spec
from losscli.losses.kinds import no_kernel_takes
from tests.parameters import naming

Given = dict[str, Any]
SHAPE = (3, 4)
NUMBERS = torch.zeros(3, dtype=torch.int64)
LINEAR: dict[str, Given] = {
    "linear_cross_entropy": {
        "input": torch.rand(SHAPE),
        "linear_weight": torch.rand(5, 4),
        "target": NUMBERS,
    },
    "linear_token_log_probs": {
        "hidden": torch.rand(SHAPE),
        "linear_weight": torch.rand(5, 4),
        "tokens": NUMBERS,
    },
}
IGNORED = ("reference_log_probs", "kl_coefficient", "kl_estimator", "memory_budget")
"""Arguments that a small call does not read."""


def drawn(spec: Spec) -> Given:
    return {
        operand.name: torch.zeros(operand.shape(SHAPE), dtype=torch.int64)
        if operand.kind == CLASS_INDICES
        else operand.domain.of_draws(torch.rand(operand.shape(SHAPE)))
        for operand in spec.operands
        if not operand.optional
    }


def calls() -> Iterator[tuple[Callable[..., Any], Given]]:
    operands = dict(LINEAR)
    for spec in (*LOSSES.values(), *EVERY_ROW_LOSS.values()):
        operands.setdefault(spec.function_name, drawn(spec))
    for name in functional.__all__:
        function = getattr(functional, name)
        tensors = operands[name.removesuffix("_with_grad")].values()
        yield function, dict(zip(inspect.signature(function).parameters, tensors, strict=False))
    for name, function in vars(sharded).items():
        if inspect.isfunction(function) and not name.startswith("_") and name in operands:
            yield function, operands[name]


CALLS = list(calls())


def kinds(function: Callable[..., Any]) -> dict[str, list[str]]:
    """Return the kinds of each argument, as its annotation has them."""
    return {
        name: str(parameter.annotation).split(" | ")
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in IGNORED
    }


def assert_told(error: type[Exception], message: str, function: Any, **given: Any) -> None:
    told: Exception | None = None
    try:
        function(**given)
    except Exception as found:
        told = found
    where = f"{getattr(function, '__module__', '')}.{function.__name__}({given}): {told!r}"
    assert type(told) is error, where
    assert re.search(message, str(told)), where


def test_the_table_has_every_function():
    assert len(CALLS) == len(functional.__all__) + 6


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_argument_of_another_kind_is_named_in_an_error():
    """In a type error; of a reduction in a value error, as in torch."""
    for function, given in CALLS:
        for name, own in kinds(function).items():
            must = f"^{function.__name__}: {name} must be "
            for value in (1.0, 1, None, [1.0], numpy.ones(3)) if "Tensor" in own else ():
                number = isinstance(value, int | float)
                if not (value is None and "None" in own) and not (number and "float" in own):
                    message = rf"{must}.*torch\.Tensor.*, but is "
                    assert_told(TypeError, message, function, **given | {name: value})
            if own[0] in ("float", "int") and "Tensor" not in own:
                for text in ("1", None) if "None" not in own else ("1",):
                    message = rf"{must}an? \w+.*, but is "
                    assert_told(TypeError, message, function, **given | {name: text})
            for other in (None, 1) if name == "reduction" else ():
                message = f"reduction must be .*, but is {other}"
                assert_told(ValueError, message, function, **given | {name: other})


def test_modules_name_a_setting_and_an_operand_of_another_kind():
    for spec in (*LOSSES.values(), *EVERY_ROW_LOSS.values()):
        module = getattr(nn, spec.module.__name__)
        for name in (each.name for each in spec.parameters):
            if "bool" not in kinds(module)[name]:
                message = rf"^{module.__name__}: {name} must be an? "
                assert_told(TypeError, message, module, **{name: None})
        others = [*drawn(spec).values()][1:]
        with naming(module), pytest.raises(TypeError, match=r"must be a torch\.Tensor, but is 1"):
            module()(1, *others)


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, of nested and quantized tensors
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_tensors_that_no_kernel_takes_are_named():
    wide = torch.rand(SHAPE)
    parts = [torch.rand(2, 4), torch.rand(1, 4)]
    others = {
        "nested": torch.nested.nested_tensor(parts, layout=torch.jagged),
        " nested": torch.nested.nested_tensor(parts),
        "sparse": wide.to_sparse(),
        "mkldnn": wide.to_mkldnn(),
        "quantized": torch.quantize_per_tensor(wide, 0.1, 0, torch.quint8),
    }
    for (function, given), (what, other) in itertools.product(CALLS, others.items()):
        for name in {next(iter(given)), list(given)[-1]}:
            message = rf"^{function.__name__}: {name} must .*{what.strip()}.*;"
            assert_told(NotImplementedError, message, function, **given | {name: other})


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_operators_advise_a_build_for_no_tensor():
    parts = [torch.rand(2, 4), torch.rand(1, 4)]
    for other in (
        torch.nested.nested_tensor(parts, layout=torch.jagged),
        torch.quantize_per_tensor(torch.rand(SHAPE), 0.1, 0, torch.quint8),
    ):
        for spec in (*LOSSES.values(), *ROW_LOSSES.values()):
            operator = getattr(torch.ops.losscli, spec.name)
            settings = [each.default for each in spec.parameters]
            operands = [None if o.optional else other for o in spec.operands]
            with naming(spec.name), pytest.raises(NotImplementedError, match=r"must .*;"):
                operator(*operands, spec.reductions[-1], *settings)


@pytest.mark.parametrize(("device", "due"), [("mps", "move it with .cpu()"), ("meta", "")])
def test_devices_without_kernels_are_named(device, due):
    tensor: Any = SimpleNamespace(
        is_nested=False, is_quantized=False, layout=torch.strided, device=torch.device(device)
    )
    assert no_kernel_takes(tensor).endswith(due)


def test_advice_for_complex_numbers_drops_no_part_of_them():
    message = r"omplex\w+(?!.*\.float\(\)).*; torch\.view_as_real\(\) returns the real and the"
    for function, given in CALLS:
        first = next(iter(given))
        other = given[first].to(torch.complex64)
        assert_told(TypeError, message, function, **given | {first: other})


def test_tensors_without_memory_are_refused_as_those_with_memory_are():
    for spec in ROW_LOSSES.values():
        given = [each.to("meta") for each in drawn(spec).values()]
        wrong: dict[str, tuple[list[Tensor], type[Exception]]] = {
            "on one device": ([*given[:-1], torch.zeros(given[-1].shape)], RuntimeError),
            "must have shape": ([*given[:-1], given[-1][:1]], RuntimeError),
            "must be float32": ([given[0].long(), *given[1:]], TypeError),
        }
        operator = getattr(torch.ops.losscli, spec.name)
        optional = [None] * (len(spec.operands) - len(given))
        settings = [each.default for each in spec.parameters]
        for message, (operands, error) in wrong.items():
            if message == "must be float32" and spec.rows > 1:
                continue  # promoted
            with naming(spec.name), pytest.raises(error, match=message):
                operator(*operands, *optional, spec.reductions[-1], *settings)
    with pytest.raises(TypeError, match=r"must be float32.*; convert with \.float\(\)"):
        functional.mse_loss(*torch.zeros(2, 3, dtype=torch.int64, device="meta"))


# ------------------------------------------------------------------------------- torch.jit.script

MODULES = [getattr(nn, name) for name in nn.__all__]


class Model(torch.nn.Module):
    def __init__(self, loss: torch.nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self.loss(input, target)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_script_says_what_compiles_modules_and_functions():
    advice = "is not compiled by torch.jit.script; use torch.compile or torch.export"
    for module in MODULES:
        one = module(4, 5) if module.__name__ == "LinearCrossEntropyLoss" else module()
        for scripted in (one, Model(one)):
            with naming(module), pytest.raises(NotImplementedError) as told:
                torch.jit.script(scripted)
            assert str(told.value) == f"{module.__name__} {advice}"
    for function, _ in CALLS:
        with naming(function), pytest.raises(NotImplementedError, match=re.escape(advice)):
            torch.jit.script(function)


def test_a_module_takes_no_setting_and_no_tensor_twice():
    given = torch.rand(3), torch.rand(3)
    with pytest.raises(TypeError, match="MSELoss takes reduction in its constructor"):
        nn.MSELoss()(*given, reduction="sum")
    with pytest.raises(TypeError, match="MSELoss got input twice"):
        nn.MSELoss()(given[0], input=given[0], target=given[1])
