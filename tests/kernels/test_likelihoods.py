"""kl_div, poisson_nll_loss and gaussian_nll_loss give what torch gives, or raise."""

import itertools
from functools import partial
from typing import Any

import pytest
import torch

from losscli import functional, nn
from tests.parameters import naming

TORCH: Any = torch.nn.functional


def logs(*shape):
    return torch.randn(*shape, dtype=torch.float64).log_softmax(-1)


def check(own, torchs, *operands):
    found = []
    for function in (own, torchs):
        leaves = [operand.clone().requires_grad_() for operand in operands]
        loss = function(*leaves)
        found.append((loss, *torch.autograd.grad(loss.sum(), leaves)))
    for got, due in zip(*found, strict=True):
        torch.testing.assert_close(got, due)


def drawn(name, settings):
    x, y, var = torch.randn(3, 6, 5, dtype=torch.float64)
    if name == "kl_div":
        return logs(6, 5), logs(6, 5) if settings["log_target"] else logs(6, 5).exp()
    if name == "gaussian_nll_loss":
        return x, y, var.abs()
    counts = torch.poisson(torch.full((6, 5), 3.0, dtype=torch.float64)) + 1.5
    return x if settings["log_input"] else x.abs() + 0.1, counts


BOTH, EPS = (False, True), (0.3,)
REDUCTIONS = ("none", "mean", "sum")
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "kl_div": ("KLDivLoss", {"log_target": BOTH, "reduction": (*REDUCTIONS, "batchmean")}),
    "poisson_nll_loss": ("PoissonNLLLoss", {"log_input": BOTH, "full": BOTH, "eps": EPS}),
    "gaussian_nll_loss": ("GaussianNLLLoss", {"full": BOTH, "reduction": REDUCTIONS, "eps": EPS}),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
def test_function_and_module_are_torchs(name):
    module, every = SETTINGS[name]
    for values in itertools.product(*every.values()):
        settings = dict(zip(every, values, strict=True))
        torchs = partial(getattr(TORCH, name), **settings)
        with naming(settings):
            check(partial(getattr(functional, name), **settings), torchs, *drawn(name, settings))
            check(getattr(nn, module)(**settings), torchs, *drawn(name, settings))


def test_batchmean_and_its_gradient_come_in_one_launch():
    x, y = logs(6, 5), logs(6, 5).exp()
    loss, gradient = functional.kl_div_with_grad(x, y, reduction="batchmean")
    torch.testing.assert_close(loss, TORCH.kl_div(x, y, reduction="batchmean"))
    torch.testing.assert_close(gradient, -y / 6)


def test_divergence_of_equal_distributions_or_of_a_probability_of_zero_is_zero():
    x, one = logs(6, 5), torch.tensor([-1.0, -2.0])
    assert functional.kl_div(x, x, log_target=True, reduction="sum") == 0
    found = functional.kl_div(x, x.exp(), reduction="none")
    torch.testing.assert_close(found, torch.zeros_like(x), rtol=0, atol=1e-15)
    assert functional.kl_div(one, torch.zeros(2), reduction="none").tolist() == [0.0, 0.0]


def test_variance_may_be_one_a_row_a_number_zero_or_nan_and_a_weight_multiplies():
    x, y, weight = torch.randn(3, 6, 6, dtype=torch.float64)
    for shape in ((6,), (6, 1)):
        var = torch.rand(shape, dtype=torch.float64) + 0.5
        check(functional.gaussian_nll_loss, TORCH.gaussian_nll_loss, x, y, var)
    for number in (2.0, 0.0, float("nan")):
        due = TORCH.gaussian_nll_loss(x, y, torch.full_like(x, number))
        found = functional.gaussian_nll_loss(x, y, number or torch.zeros_like(x))
        torch.testing.assert_close(found, due, equal_nan=True)
    due = TORCH.gaussian_nll_loss(x, y, torch.full_like(x, 2), reduction="none") * weight
    found = functional.gaussian_nll_loss(x, y, 2.0, reduction="none", weight=weight)
    torch.testing.assert_close(found, due)


@pytest.mark.parametrize("var", [-1.0, torch.tensor([[1.0, 2.0, -1e-30]])])
def test_negative_variance_raises_as_in_torch(var):
    x, y = torch.randn(2, 4, 3)
    for call in (functional.gaussian_nll_loss, nn.GaussianNLLLoss()):
        with pytest.raises(ValueError, match="var has negative entry/entries"):
            call(x, y, var)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_loss_and_gradients_of_a_negative_variance_are_nan(reduction, device):
    """Seen from where the public function does not look: the op itself, as on a GPU."""
    x, y = torch.randn(2, 4, 3, device=device)
    var = torch.ones_like(x)
    var[2, 1] = -1e-30
    operands = [each.requires_grad_() for each in (x, y, var)]
    loss = torch.ops.losscli.gaussian_nll.default(*operands, reduction, 0.0, 1e-6, 0)
    gradients = torch.autograd.grad(loss.sum(), operands)
    for result in (loss, *gradients) if reduction == "none" else gradients:
        assert result.isnan().nonzero().tolist() == [[2, 1]]
    if reduction == "mean":
        assert loss.isnan()
    if device == "cuda":
        assert functional.gaussian_nll_loss(x, y, -torch.ones_like(x)).isnan()
