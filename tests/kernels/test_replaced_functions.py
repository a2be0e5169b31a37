import ast
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import losscli
from losscli import functional, nn
from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS
from losscli.truth.inputs import make_inputs
from losscli.truth.textbook import OWN
from tests import handmade
from tests.parameters import naming

EVERY = {**LOSSES, **ROW_FORMS, **LINEAR_LOSSES}
FUNCTIONS = [
    name
    for name, each in vars(torch.nn.functional).items()
    if not name.startswith("_") and callable(each) and not isinstance(each, type)
]

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def results(loss: str) -> Iterator[tuple[str, Any]]:
    """Yield what each transform makes of a loss, and its reference and baseline, by names."""
    spec = EVERY[loss]
    case = handmade.small_case_of(loss, reduction=spec.reductions[-1], dtype="float64")
    first, *others = make_inputs(case).values()
    along = 0.5 * torch.ones_like(first)
    bound = spec.bound(case.reduction, case.params)

    def loss_of(input: Tensor, *rest: Tensor) -> Tensor:
        return bound(input, *rest).sum()

    def of_first(input: Tensor) -> Tensor:
        return loss_of(input, *others)

    def of_samples(function: Callable[..., Any]) -> Any:
        return torch.func.vmap(function)(*(torch.stack([each, each]) for each in (first, *others)))

    def by_autograd() -> tuple[Tensor, ...]:
        leaf = first.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(of_first(leaf), leaf, create_graph=True)
        if not gradient.requires_grad:
            return (gradient,)
        return gradient.detach(), *torch.autograd.grad((gradient**2).sum(), leaf)

    yield "first and second derivatives", by_autograd()
    yield "torch.func.grad", torch.func.grad(of_first)(first)
    yield "vmap", of_samples(loss_of)
    yield "vmap of grad", of_samples(torch.func.grad(loss_of))
    yield "jvp", torch.func.jvp(of_first, (first,), (along,))
    yield "hessian", torch.func.hessian(of_first)(first)
    yield "forward over reverse", torch.func.jvp(torch.func.grad(of_first), (first,), (along,))
    settings = {"reduction": case.reduction, **case.params}
    # Within a mode of torch functions those of torch.nn.functional look up their own names.
    with torch.device("cpu"):
        yield "loss in a mode", of_first(first)
        yield "grad in a mode", torch.func.grad(of_first)(first)
        yield "reference", spec.reference(first, *others, **settings)
        if spec.functional is not None and loss not in LINEAR_LOSSES:
            yield "functional", spec.functional(first, *others, **settings)
        if own := OWN.get(loss):
            yield "PyTorch's own", own(first, *others, **settings)


@pytest.mark.parametrize("loss", EVERY)
def test_losses_call_no_function_that_a_program_may_have_replaced(loss, monkeypatch):
    due = dict(results(loss))
    for name in FUNCTIONS:

        def refuse(*given, name=name, **named):
            raise AssertionError(f"torch.nn.functional.{name} was called")

        monkeypatch.setattr(torch.nn.functional, name, refuse)
    for name, found in results(loss):
        with naming(name):
            torch.testing.assert_close(found, due[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("loss", ["nll", "cross_entropy", "mse"])
def test_losses_that_replace_all_of_torchs_do_not_call_themselves(loss, monkeypatch):
    due = dict(results(loss))
    for name in FUNCTIONS:
        if own := getattr(functional, name, None):
            monkeypatch.setattr(torch.nn.functional, name, own)
    for name, found in results(loss):
        with naming(name):
            torch.testing.assert_close(found, due[name], rtol=0, atol=0, equal_nan=True)


def test_a_replaced_function_is_never_taken_for_the_one_baseline_that_has_no_operator(monkeypatch):
    baseline = LINEAR_LOSSES["linear_cross_entropy"].functional
    assert baseline is not None
    operands = torch.randn(3, 2), torch.zeros(3).long(), torch.randn(4, 2)
    monkeypatch.setattr(
        torch.nn.functional, "linear_cross_entropy", functional.linear_cross_entropy, raising=False
    )
    with pytest.raises(RuntimeError, match="linear_cross_entropy has replaced it"):
        baseline(*operands, reduction="mean")


USERS = {
    "losses/aten.py": "has the one function that is no operator",
    "patching/functional.py": "replaces its losses",
    "verify/selftest/wrong/side_effects.py": "is wrong on purpose: it changes it",
    "verify/selftest/legitimate.py": "is what a person writes",
    "verify/selftest/wrong/composed.py": "is what a person writes",
}


def test_only_listed_files_use_torch_nn_functional():
    root = Path(losscli.__file__).parent

    def names(node):
        if isinstance(node, ast.ImportFrom):
            return [f"{node.module}.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        return [ast.unparse(node)] if isinstance(node, ast.Attribute) else []

    users = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if "functional" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        for name in names(node)
        if f"{name}.".startswith("torch.nn.functional.")
    }
    assert users == set(USERS)


TORCH: Any = torch.nn.functional
OF_TORCH = [spec.loss.__name__ for spec in LOSSES.values() if hasattr(TORCH, spec.loss.__name__)]
MODULES = [
    spec.module.__name__ for spec in LOSSES.values() if hasattr(torch.nn, spec.module.__name__)
]
LATER = ("weight",)
"""What a newer torch takes, or none does: last, so that no position changes."""


def parameters(callable: Any) -> dict[str, Any]:
    given = inspect.signature(callable).parameters
    return {name: parameter.default for name, parameter in given.items()}


@pytest.mark.parametrize("name", OF_TORCH)
def test_function_has_the_signature_of_torchs(name):
    own, torchs = parameters(getattr(functional, name)), parameters(getattr(TORCH, name))
    added = [each for each in own if each not in torchs]
    assert list(own.items())[: len(torchs)] == list(torchs.items())
    assert not added or (tuple(added) == LATER and list(own)[-1:] == added)


@pytest.mark.parametrize("name", MODULES)
def test_module_has_the_signature_of_torchs(name):
    assert parameters(getattr(nn, name)) == parameters(getattr(torch.nn, name))


@pytest.mark.parametrize("spec", LOSSES.values(), ids=list(LOSSES))
def test_with_grad_takes_the_same_and_the_incoming_gradient(spec):
    both, own = parameters(spec.loss_with_grad), parameters(spec.loss)
    assert both.pop("grad_output") == 1.0
    assert both == own
    for function in (spec.loss, spec.loss_with_grad):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize(
    ("size_average", "reduce"),
    [(True, None), (False, None), (None, True), (None, False), (False, False), (True, True)],
)
def test_deprecated_arguments_choose_the_reduction_that_they_choose_in_torch(size_average, reduce):
    x, y = torch.randn(2, 5)
    with pytest.warns(UserWarning, match="please use reduction"):
        due = TORCH.mse_loss(x, y, size_average, reduce)
    with pytest.warns(UserWarning, match="size_average and reduce are deprecated: use reduction="):
        got = functional.mse_loss(x, y, size_average, reduce)
    with pytest.warns(UserWarning, match="are deprecated"):
        of_module = nn.MSELoss(size_average, reduce)(x, y)
    torch.testing.assert_close(got, due)
    torch.testing.assert_close(of_module, due)


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss"])
def test_broadcast_target_is_warned_of_where_torch_warns(name):
    x, y = torch.randn(4, 5), torch.randn(5)
    for library in (TORCH, functional):
        with pytest.warns(UserWarning, match="Using a target size") as found:
            getattr(library, name)(x, y)
        assert [warning.filename for warning in found] == [__file__]
