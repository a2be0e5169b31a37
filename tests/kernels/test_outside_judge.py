"""PyTorch's own test suite judges the losses: its samples, its references, its tolerances.

In copies of the entries of ``torch.testing._internal`` losscli's losses replace torch's, so that
this project chose none of the expected results. The package is private: without it, or without
what is used of it, every test here is skipped with the reason.
"""

import copy
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from losscli import functional, nn
from losscli.losses import LOSSES, ROW_FORMS
from tests.parameters import SLOW, few, naming

from .losses import DTYPES

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    # PyTorch's own advice on kl_div.
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
]

Loss = Callable[..., Tensor]

SPECS = (*LOSSES.values(), *ROW_FORMS.values())
OPERATORS: dict[str, Loss] = {
    name: getattr(functional, name)
    for name in (spec.function_name for spec in SPECS)
    if hasattr(torch.nn.functional, name)
}
WITHOUT_ENTRY = ("TripletMarginLoss",)
"""The modules of torch.nn of which torch has no entry."""
MODULES: dict[str, type[torch.nn.Module]] = {
    name: getattr(nn, name)
    for name in (spec.module.__name__ for spec in SPECS)
    if hasattr(torch.nn, name) and name not in WITHOUT_ENTRY
}
CHOSEN = ("smooth_l1_loss", "mse_loss", "cross_entropy", "triplet_margin_loss")
"""What is put to all samples on each run. Values and derivatives of the other formulas are those of
references and of differences in ``test_formulas.py`` and ``test_row_losses.py``."""
LAYOUTS = ("contiguous", "noncontiguous")
WIDTHS = (("float64", "float16"), ("float32", "bfloat16"))
"""The dtypes that are put to one layout and the other on each run."""
DRAWN = [
    pytest.param(dtype, layout, marks=[] if dtype in WIDTHS[place] else [SLOW])
    for dtype in DTYPES
    for place, layout in enumerate(LAYOUTS)
]
FINITE_WHERE_TORCH_IS_NAN = {
    "nn.functional.poisson_nll_loss": "autograd of log(target!) multiplies 0 by the log of 0"
}
"""What losscli documents to be finite, and why PyTorch's is not."""


@pytest.fixture(scope="module")
def judge():
    """torch's entries by our names for them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that hypothesis, which is not needed, is absent
            from torch.testing._internal import common_methods_invocations, common_modules
            from torch.testing._internal.opinfo.core import OpInfo, SampleInput
        operators = {info.name: info for info in common_methods_invocations.op_db}
        modules = {info.module_cls: info for info in common_modules.module_db}
        found = SimpleNamespace(
            operators={name: operators[f"nn.functional.{name}"] for name in OPERATORS},
            modules={name: modules[getattr(torch.nn, name)] for name in MODULES},
            with_errors=operators["nn.functional.l1_loss"],
            linear=[
                info
                for info in common_methods_invocations.op_db
                if info.name == "nn.functional.linear_cross_entropy"
            ],
        )
        used = {
            OpInfo: ("reference_inputs", "error_inputs"),
            SampleInput: ("noncontiguous", "numpy", "transform"),
        }
        for owner, names in used.items():
            for name in names:
                getattr(owner, name)
    except (ImportError, AttributeError, KeyError) as error:
        pytest.skip(f"torch.testing._internal cannot be the judge: {error!r}")
    return found


@pytest.fixture(autouse=True)
def _seed():
    """Fix what the entries draw where they set no seed of their own."""
    torch.manual_seed(0)


def in_place_of(entry: Any, loss: Loss) -> Any:
    entry = copy.copy(entry)
    entry.op = loss
    return entry


def samples(entry: Any, device: str, dtype: torch.dtype, layout: str = "contiguous") -> list[Any]:
    """Draw the entry's reference inputs, which are its sample inputs where it has no others."""
    drawn = entry.reference_inputs(device, dtype, requires_grad=True)
    found = [sample.noncontiguous() if layout == "noncontiguous" else sample for sample in drawn]
    assert found
    return found


TOLERANCES = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
}
"""Relative and absolute, as torch.testing's own."""


def cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)


def in_dtype(sample: Any, dtype: torch.dtype) -> Any:
    return sample.transform(
        lambda each: cast(each, dtype) if isinstance(each, torch.Tensor) else each
    )


def value_and_gradients(loss, operands, **arguments):
    result = loss(*operands, **arguments)
    leaves = [operand for operand in operands if operand.requires_grad]
    # Small integers, the same in every dtype, and -3 for a single loss.
    incoming = (torch.arange(result.numel()) % 7 - 3).view(result.shape).to(result)
    # A target of cosine_embedding_loss may ask for a gradient, and gets none.
    gradients = torch.autograd.grad(result, leaves, incoming, materialize_grads=True)
    return (result.detach(), *gradients)


def judge_against_torch(entry: Any, torchs: Any, device: str, dtype: str, layout: str) -> None:
    for sample in samples(torchs, device, DTYPES[dtype], layout):
        # torch would round 16-bit values after each step, and a sum that cancels in float32.
        other = in_dtype(sample, torch.float64)
        got = value_and_gradients(entry, (sample.input, *sample.args), **sample.kwargs)
        wanted = value_and_gradients(torchs, (other.input, *other.args), **other.kwargs)
        relative, absolute = TOLERANCES[dtype]
        for number, (ours, expected) in enumerate(zip(got, wanted, strict=True)):
            due = expected.to(DTYPES[dtype])
            if torchs.name in FINITE_WHERE_TORCH_IS_NAN:
                due = torch.where(due.isnan(), ours, due)
            terms = summed(torchs, other, expected) if number == 0 else 0.0
            rounded = 4 * torch.finfo(DTYPES[dtype]).eps * terms
            assert_close(ours, due, rtol=relative, atol=absolute + rounded)


def summed(torchs: Any, sample: Any, loss: Tensor) -> float:
    """Return the sum of the elements' sizes, reduced as the loss is; 0 of one that is not."""
    if loss.dim():
        return 0.0
    settings = sample.kwargs | {"reduction": "none"}
    elements = torchs(sample.input, *sample.args, **settings).detach()
    ratio = loss / elements.sum()
    size = (ratio * elements.abs().sum()).abs().item()
    return size if math.isfinite(size) else 0.0


def judge_by_differences(entry: Any, device: str) -> None:
    for sample in samples(entry, device, torch.float64):
        loss = functools.partial(entry, **sample.kwargs)
        operands = (sample.input, *sample.args)
        assert torch.autograd.gradcheck(loss, operands, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(loss, operands, gen_non_contig_grad_outputs=True)


def judge_forward_mode(entry: Any, device: str) -> None:
    """Compare first derivatives of forward mode, also of several at once, with the same."""
    for sample in samples(entry, device, torch.float64):
        assert torch.autograd.gradcheck(
            functools.partial(entry, **sample.kwargs),
            (sample.input, *sample.args),
            check_backward_ad=False,
            check_forward_ad=True,
            check_batched_grad=False,
            check_batched_forward_grad=True,
        )


@pytest.mark.parametrize(("dtype", "layout"), DRAWN)
@pytest.mark.parametrize("loss", few(OPERATORS, CHOSEN))
def test_an_operator_equals_torchs(judge, loss, dtype, layout, device):
    torchs = judge.operators[loss]
    judge_against_torch(in_place_of(torchs, OPERATORS[loss]), torchs, device, dtype, layout)


@pytest.mark.parametrize("loss", OPERATORS)
def test_an_operator_equals_its_numpy_reference(judge, loss, device):
    entry = in_place_of(judge.operators[loss], OPERATORS[loss])
    if entry.ref is None:
        pytest.skip(f"torch has no reference of {loss} in numpy")
    for dtype, layout in itertools.product(DTYPES, LAYOUTS):
        for sample in samples(entry, device, DTYPES[dtype], layout):
            got = entry(sample.input, *sample.args, **sample.kwargs).detach()
            exact = in_dtype(sample, torch.float64).numpy()
            expected = entry.ref(exact.input, *exact.args, **exact.kwargs)
            with naming(dtype, layout):
                assert_close(got.cpu(), torch.as_tensor(expected).to(DTYPES[dtype]))


@pytest.mark.parametrize("loss", few(OPERATORS, ("smooth_l1_loss", "mse_loss")))
def test_operator_passes_pytorchs_derivative_tests(judge, loss, device):
    entry = in_place_of(judge.operators[loss], OPERATORS[loss])
    judge_by_differences(entry, device)
    judge_forward_mode(entry, device)


def three_of(operand: Tensor) -> Iterator[Tensor]:
    for number in range(3):
        floating = operand.is_floating_point()
        yield operand / 2**number if floating else operand.roll(number)


@pytest.mark.parametrize("loss", few(OPERATORS, CHOSEN))
def test_operator_maps_over_samples_as_a_loop_does(judge, loss, device):
    entry = in_place_of(judge.operators[loss], OPERATORS[loss])
    for sample in samples(entry, device, torch.float64):
        function = functools.partial(entry, **sample.kwargs)
        operands = [operand.detach() for operand in (sample.input, *sample.args)]
        for mapped in range(len(operands)):
            places = [0 if place == mapped else None for place in range(len(operands))]
            several = operands.copy()
            several[mapped] = torch.stack([*three_of(operands[mapped])])
            each = [
                function(*operands[:mapped], one, *operands[mapped + 1 :])
                for one in several[mapped]
            ]
            got = torch.func.vmap(function, tuple(places))(*several)
            assert_close(got, torch.stack(each))


@pytest.mark.parametrize("loss", OPERATORS)
def test_operator_raises_pytorchs_expected_errors(judge, loss, device):
    """torch lists errors for few losses of ours; those of l1_loss take the same arguments.

    A loss over rows takes others, and is judged by its own list.
    """
    spec = next((each for each in LOSSES.values() if each.function_name == loss), None)
    entry = judge.with_errors if spec else judge.operators[loss]
    if entry.error_inputs_func is None:
        pytest.skip(f"torch lists no errors of {loss}")
    errors = list(entry.error_inputs(device))
    assert errors
    others = spec.names if spec else ()
    for error in errors:
        sample = error.sample_input
        variances = {name: torch.ones((), device=device) for name in others[2:]}
        arguments = sample.input, *sample.args
        with pytest.raises(Exception) as due:  # noqa: PT011 - whatever the function of that name raises
            getattr(torch.nn.functional, loss)(*arguments, **variances, **sample.kwargs)
        with pytest.raises(due.type):
            OPERATORS[loss](*arguments, **variances, **sample.kwargs)


def module_inputs(entry: Any, device: str, dtype: torch.dtype) -> list[Any]:
    drawn = entry.module_inputs_func(
        entry, device=device, dtype=dtype, requires_grad=True, training=True
    )
    found = list(drawn)
    assert found
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_module_equals_torchs_and_its_reference(judge, name, device):
    for dtype in DTYPES:
        with naming(dtype):
            judge_module(judge.modules[name], name, dtype, device)


def judge_module(entry: Any, name: str, dtype: str, device: str) -> None:
    # 16-bit values torch would round after each step.
    wide = torch.float64 if dtype == "float64" else torch.float32
    for inputs in module_inputs(entry, device, DTYPES[dtype]):
        settings, operands = inputs.constructor_input, inputs.forward_input.args
        ours = MODULES[name](*settings.args, **settings.kwargs)
        torchs = entry.module_cls(*settings.args, **settings.kwargs).to(wide)
        # An operand that is there twice, as for a scalar KLDivLoss, stays one.
        copies = {one: cast(one, wide) for one in operands}
        others = [copies[one] for one in operands]
        got = value_and_gradients(ours, operands)
        pairs = list(zip(got, value_and_gradients(torchs, others), strict=True))
        # Operands of KLDivLoss are logarithms of numbers of both signs: no gradient is right there.
        undefined = any(operand.isnan().any() for operand in operands)
        for mine, expected in pairs[:1] if undefined else pairs:
            assert_close(mine, expected.to(DTYPES[dtype]), equal_nan=True)
        has_weight = any(isinstance(each, Tensor) for each in settings.kwargs.values())
        if has_weight and dtype != "float64":  # which the entry's reference takes as it is
            continue
        exact = [cast(operand.detach(), torch.float64) for operand in operands]
        in_float64 = MODULES[name](*settings.args, **settings.kwargs).double()
        due = inputs.reference_fn(in_float64, *exact).to(DTYPES[dtype])
        assert_close(got[0], due, equal_nan=True)


def with_twice_the_beta(input: Tensor, target: Tensor, beta: float = 1.0, **rest: Any) -> Tensor:
    return functional.smooth_l1_loss(input, target, beta=2 * beta, **rest)


def without_the_targets_gradient(input: Tensor, target: Tensor, **arguments: Any) -> Tensor:
    return functional.smooth_l1_loss(input, target.detach(), **arguments) + 0 * target.sum()


def without_strides(input: Tensor, target: Tensor, **arguments: Any) -> Tensor:
    packed = torch.empty(input.shape).stride()
    return functional.smooth_l1_loss(input.as_strided(input.shape, packed), target, **arguments)


def without_second_derivatives(input: Tensor, target: Tensor, **arguments: Any) -> Tensor:
    result = functional.smooth_l1_loss(input, target, **arguments)
    slopes = torch.autograd.grad(result.sum(), (input, target))
    change = (input - input.detach()) * slopes[0] + (target - target.detach()) * slopes[1]
    return result.detach() + change.sum_to_size(result.shape)


def test_wrong_values_gradients_strides_and_second_derivatives_are_caught(judge, device):
    torchs = judge.operators["smooth_l1_loss"]

    def judged(loss, dtype, layout):
        judge_against_torch(in_place_of(torchs, loss), torchs, device, dtype, layout)

    for loss, layout in (
        (with_twice_the_beta, "contiguous"),
        (without_the_targets_gradient, "contiguous"),
        (without_strides, "noncontiguous"),
    ):
        with naming(loss.__name__), pytest.raises(AssertionError, match="not close"):
            judged(loss, "float32", layout)
    judged(without_strides, "float32", "contiguous")
    judged(without_second_derivatives, "float64", "contiguous")
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        judge_by_differences(in_place_of(torchs, without_second_derivatives), device)


@pytest.mark.skipif(
    not hasattr(torch.nn.functional, "linear_cross_entropy"), reason="this torch has no such loss"
)
def test_samples_of_linear_cross_entropy_have_torchs_loss(judge):
    """Those with class indices and a matrix of weights; others are told what to call."""
    samples = 0
    for op in judge.linear:
        for sample in op.sample_inputs("cpu", torch.float64):
            named = {k: v for k, v in sample.kwargs.items() if k != "options"}
            weight, target = sample.args[:2]
            if weight.dim() != 2 or target.is_floating_point():
                continue
            found = functional.linear_cross_entropy(sample.input, weight, target, **named)
            assert_close(found, op.op(sample.input, weight, target, **named), equal_nan=True)
            samples += 1
    assert samples
