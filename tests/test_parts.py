"""Parts of rows, without ranks: joined, their numbers make losses and gradients of whole rows."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from losscli import functional
from losscli.linear.kernels import Settings
from losscli.linear.parts import Rows, operators
from losscli.losses.formulas import widened
from tools.part_calls import put_together

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROWS = 7
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "z_loss": {"z_loss": 0.1},
    "temperature": {"temperature": 1.7},
    "smoothing": {"label_smoothing": 0.2},
    "softcap": {"softcap": 5.0, "temperature": 0.9},
    "all": {"label_smoothing": 0.2, "softcap": 5.0, "z_loss": 0.1, "temperature": 1.3},
}
WIDTHS = {
    "even": (40, 24),
    # Rows begin anywhere among the 16 bytes that a GPU reads at a time, and end there.
    "odd": (37, 3),
    # A GPU's blocks take stretches of a row of up to 32,768 classes.
    "long": (33001, 32999),
}

CASES = {
    f"{width}-{setting}": (WIDTHS[width], SETTINGS[setting])
    for width in WIDTHS
    for setting in SETTINGS
    if width == "odd" or setting in ("plain", "all")
}


def _logits(width: int, dtype: torch.dtype, device: str) -> Tensor:
    generator = torch.Generator().manual_seed(width)
    return (3 * torch.randn(ROWS, width, generator=generator)).to(device, dtype)


def _target(classes: int, device: str) -> Tensor:
    found = torch.arange(ROWS) * 11 % classes
    found[0], found[1], found[2] = classes - 1, -100, 0
    return found.to(device)


def _assert_close(*pairs: tuple[Tensor, Tensor | None]) -> None:
    """Compare each tensor of a dtype with what it is in float64."""
    for found, exact in pairs:
        # Of a gradient of 16 bits its rounding; else a few of float's, whose exponents cost digits.
        usual = {torch.float64: 1e-11, torch.float32: 2e-5}
        relative = usual.get(found.dtype, 2 * torch.finfo(found.dtype).eps)
        assert exact is not None
        wide = found.double()
        torch.testing.assert_close(wide, exact.detach(), rtol=relative, atol=relative / 100)


@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize(("widths", "settings"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_parts_make_the_cross_entropy_of_whole_rows(
    dtype: torch.dtype, widths: Any, settings: dict[str, Any], weighted: bool, device: str
):
    logits, classes = _logits(sum(widths), dtype, device), sum(widths)
    weight = torch.linspace(0.5, 2, classes, device=device).to(dtype) if weighted else None
    target = _target(classes, device)
    exact = logits.double().requires_grad_()
    wide = None if weight is None else weight.double()
    truth = functional.cross_entropy(exact, target, wide, **settings)
    truth.backward(torch.tensor(3.0, device=device))
    rows = Rows(target, classes, weight, Settings(**settings), "mean", True, False)
    loss, found, parts = put_together(logits, widths, rows)
    incoming = torch.tensor(3.0, device=device, dtype=loss.dtype)
    gradient = torch.cat([part.gradient(found, incoming) for part in parts], 1)
    assert gradient.dtype == dtype
    assert loss.dtype == widened(dtype)
    _assert_close((loss, truth), (gradient, exact.grad))


@pytest.mark.parametrize("entropy", [False, True], ids=("alone", "with_entropies"))
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_parts_make_the_log_probabilities_and_entropies_of_whole_rows(
    dtype: torch.dtype, entropy: bool, device: str
):
    logits, classes = _logits(40, dtype, device), 40
    logits[3, :37] = -math.inf  # all of a part
    logits[4, 37:] = -math.inf
    target = _target(classes, device).clamp(min=0)
    target[3], target[4] = 38, 0
    exact = logits.double().requires_grad_()
    whole = functional.token_log_probs(exact, target, temperature=1.3, entropy=entropy)
    truth = torch.stack(whole) if isinstance(whole, tuple) else -whole
    incoming = torch.linspace(-1, 2, truth.numel(), device=device).view(truth.shape)
    truth.backward(incoming.double())
    settings = Settings(temperature=1.3, entropy=entropy)
    rows = Rows(target, classes, None, settings, "none", False, False)
    values, found, parts = put_together(logits, (37, 3), rows)
    gradient = torch.cat([part.gradient(found, incoming) for part in parts], 1)
    _assert_close((values, truth), (gradient, exact.grad))


def test_a_class_number_of_no_part_makes_the_row_nan(device: str):
    logits = _logits(40, torch.float32, device)
    target = _target(40, device)
    target[5] = 40
    rows = Rows(target, 40, None, Settings(), "none", True, False)
    losses, found, parts = put_together(logits, (37, 3), rows)
    gradient = parts[1].gradient(found, torch.ones_like(losses))
    expected = torch.arange(ROWS, device=device) == 5
    assert torch.equal(losses.isnan(), expected)
    assert torch.equal(gradient.isnan().all(1), expected)


@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_parts_make_the_divergence_of_whole_rows(
    dtype: torch.dtype, widths: tuple[int, ...], device: str
):
    pair = [_logits(sum(widths) + k, dtype, device)[:, k:] for k in (0, 1)]
    mask = torch.arange(ROWS, device=device) != 2
    pair[0][2] = math.nan  # of a row that does not count
    exact = [each.double().requires_grad_() for each in pair]
    truth = functional.kl_divergence(*exact, mask=mask, temperature=1.4, reduction="none")
    incoming = torch.linspace(-1, 2, ROWS, device=device)
    truth.backward(incoming.double())
    halves = list(zip(*(each.split(widths, 1) for each in pair), strict=True))
    call = torch.ops.losscli.kl_divergence_of_part
    numbers = torch.stack([call(*half, mask, "none", 1.4) for half in halves])
    held = torch.tensor(widths, device=device)
    of_parts = operators(mask)
    whole = of_parts.join_divergences(numbers, held, mask, sum(widths), -1, 0, 1.4)
    _assert_close((whole[0], truth))
    for wanted in ((True, True), (False, True)):
        found = [
            of_parts.divergence_gradients(incoming, *half, mask, whole, 1.4, wanted)
            for half in halves
        ]
        for k, gradients in enumerate(zip(*found, strict=True)):
            gradient = torch.cat(gradients, -1)
            if not wanted[k]:
                assert gradient.numel() == 0
                continue
            _assert_close((gradient, exact[k].grad))


def test_parts_that_are_not_those_of_the_rows_make_them_nan(device: str):
    numbers = torch.zeros(2, 3, ROWS, device=device)
    rows = (_target(40, device), None, 0, 40)
    rest = (40, -100, 0.0, 1.0, 0.0, 0.0, False, False)
    for widths, first, fits in (((37, 3), 37, True), ((36, 4), 37, False), ((37, 2), 37, False)):
        held = torch.tensor(widths, device=device)
        _, values = operators(held).join_parts(numbers, held, *rows, 1, first, *rest)
        assert bool(values[0].isnan().any()) != fits
