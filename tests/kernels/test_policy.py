"""The policy loss equals the formulas of the papers, for each form, reduction, mask and estimate.

The formulas are written again in plain PyTorch, from the papers and from what TRL and verl compute.
"""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from losscli.functional import kl_estimate, policy_loss, policy_loss_with_grad
from losscli.nn import PolicyLoss
from tests.parameters import naming

BATCH, LENGTH = 6, 11
FORMS: dict[str, dict[str, Any]] = {
    "ppo": {"clip_low": 0.2, "clip_high": 0.2},
    "dapo": {"clip_low": 0.2, "clip_high": 0.28},
    "dual clip": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 3.0},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0, "cispo": True},
    "cispo of both bounds": {"clip_low": 0.3, "clip_high": 0.2, "cispo": True},
}


@pytest.fixture
def rollout(device):
    """Log-probabilities of tokens, whose ratios lie below, between and above the bounds."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    old = -normal(BATCH, LENGTH).abs() - 0.1
    drawn = {
        "log_probs": old + 1.2 * normal(BATCH, LENGTH),
        "old_log_probs": old,
        "advantages": normal(BATCH, 1),
        "reference_log_probs": old + 0.3 * normal(BATCH, LENGTH),
    }
    return {name: each.to(device) for name, each in drawn.items()}


@pytest.fixture
def mask(device):
    """Sequences of different lengths, one of which is empty."""
    lengths = torch.tensor([0, 1, 4, LENGTH, LENGTH - 1, 6])
    return (torch.arange(LENGTH) < lengths[:, None]).to(device)


def of_tokens(log_probs, old, advantages, *, clip_low, clip_high, dual_clip=0.0, cispo=False):
    ratio = torch.exp(log_probs - old)
    clipped = torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
    if cispo:
        return -clipped.detach() * advantages * log_probs
    loss = -torch.min(ratio * advantages, clipped * advantages)
    if dual_clip:
        loss = torch.where(advantages < 0, torch.min(loss, -advantages * dual_clip), loss)
    return loss


ESTIMATES: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    1: lambda own, other: own - other,
    2: lambda own, other: (own - other).square() / 2,
    3: lambda own, other: torch.exp(other - own) - (other - own) - 1,
}
LONGEST, TOKENS = 32.0, 100.0
NORMALISERS: dict[str, tuple[dict[str, Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "over tokens": (
        {"reduction": "mean"},
        lambda loss, mask: (loss * mask).sum() / mask.sum().clamp(min=1.0),
    ),
    "over sequences of means": (
        {"reduction": "sequence_mean"},
        lambda loss, mask: ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean(),
    ),
    "over sequences of sums": (
        {"reduction": "sequence_sum"},
        lambda loss, mask: (loss * mask).sum(-1).mean(),
    ),
    "over a constant length": (
        {"reduction": "sequence_sum", "divisor": LONGEST},
        lambda loss, mask: (loss * mask).sum() / (loss.shape[0] * LONGEST),
    ),
    "over tokens of all ranks": (
        {"reduction": "sum", "divisor": TOKENS},
        lambda loss, mask: (loss * mask).sum() / TOKENS,
    ),
    "none": ({"reduction": "none"}, lambda loss, mask: loss * mask),
}


def check(operands: dict[str, Tensor], expected: Callable[..., Tensor], **settings: Any) -> None:
    found = []
    for function in (partial(policy_loss, **settings), expected):
        own, *others = (each.clone() for each in operands.values())
        loss = function(own.requires_grad_(), *others)
        (gradient,) = torch.autograd.grad(-3 * loss.sum(), own)
        found.append((loss.detach(), gradient))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-15)


def normalised(
    normaliser,
    counted,
    form,
    own,
    old,
    advantages,
    other,
    *,
    weight=1.0,
    kl_coefficient=0.0,
    estimator=3,
):
    loss = weight * of_tokens(own, old, advantages, **FORMS[form])
    return normaliser(loss + kl_coefficient * ESTIMATES[estimator](own, other), counted)


def test_ratios_lie_on_both_sides_of_each_bound(rollout):
    ratio = torch.exp(rollout["log_probs"] - rollout["old_log_probs"])
    falls = rollout["advantages"] < 0
    for clipped in (ratio < 0.7, ratio > 1.3, ratio > 5, ratio > 3):
        assert (clipped & falls).any()
        assert (clipped & ~falls).any()


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_normalisers_equal_those_in_use_with_a_mask_and_without(normaliser, rollout, mask):
    settings, own = NORMALISERS[normaliser]
    for form, given in itertools.product(FORMS, (mask, mask.long(), None)):
        counted = torch.ones_like(rollout["log_probs"]) if given is None else mask.double()
        with naming(form, None if given is None else given.dtype):
            expected = partial(normalised, own, counted, form)
            check(rollout, expected, mask=given, **settings, **FORMS[form])


@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_divergence_and_weight_are_those_of_grpo(normaliser, rollout, mask):
    """As in TRL, weights that correct for another sampler leave the divergence as it is."""
    settings, own = NORMALISERS[normaliser]
    weight = rollout["old_log_probs"].exp()
    for estimator, each in itertools.product(ESTIMATES, (None, weight)):
        with naming(estimator, "without a weight" if each is None else "with a weight"):
            expected = partial(
                normalised,
                own,
                mask.double(),
                "ppo",
                weight=1.0 if each is None else each,
                kl_coefficient=0.04,
                estimator=estimator,
            )
            given = {"kl_coefficient": 0.04, "kl_estimator": estimator, "weight": each}
            check(rollout, expected, mask=mask, **given, **settings)


def test_loss_with_grad_and_module_give_what_the_function_gives(rollout, mask):
    for settings, _ in NORMALISERS.values():
        own = rollout["log_probs"].clone().requires_grad_()
        others = [each for name, each in rollout.items() if name != "log_probs"]
        given = {"mask": mask, "kl_coefficient": 0.1, **settings}
        loss = policy_loss(own, *others, **given)
        (gradient,) = torch.autograd.grad(loss.sum(), own)
        found = policy_loss_with_grad(own.detach(), *others, **given, grad_output=1.0)
        torch.testing.assert_close(found, (loss.detach(), gradient), rtol=1e-14, atol=0)
        divisor = given.pop("divisor", None)
        module = PolicyLoss(kl_coefficient=given["kl_coefficient"], reduction=given["reduction"])
        again = module(own.detach(), *others, mask=mask, divisor=divisor)
        torch.testing.assert_close(again, loss.detach(), rtol=0, atol=0)


def test_ratio_on_a_bound_passes_the_gradient_as_clamp(device):
    """Bounds of 0, whose ratio of 1 every dtype holds."""
    operands = {
        "log_probs": torch.zeros(3, 2, dtype=torch.float64, device=device),
        "old_log_probs": torch.zeros(3, 2, dtype=torch.float64, device=device),
        "advantages": torch.tensor([[2.0], [0.0], [-1.0]], dtype=torch.float64, device=device),
    }
    for cispo in (False, True):
        settings: dict[str, Any] = {"clip_low": 0.0, "clip_high": 0.0, "cispo": cispo}
        check(operands, partial(of_tokens, **settings), reduction="none", **settings)


@pytest.mark.parametrize("bound", [1.2, 0.8, 3.0])
def test_float32_clips_on_the_side_on_which_the_exact_ratio_lies(bound, device):
    """Log-probabilities around a bound, next to each other in float32, whose exponentials round."""
    old = torch.full((2001,), -3.7, dtype=torch.float32, device=device)
    at = torch.tensor(-3.7 + math.log(bound), dtype=torch.float32)
    steps = torch.arange(-1000, 1001) * torch.finfo(torch.float32).eps * 2
    own = (at + steps.to(torch.float32)).to(device).requires_grad_()
    sign = 1.0 if bound == 1.2 else -1.0
    loss = policy_loss(own, old, torch.full_like(old, sign), dual_clip=3.0, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), own)
    log = own.detach().double() - old.double()
    free = log <= math.log(bound) if bound != 0.8 else log >= math.log(bound)
    assert 0 < free.sum() < len(free)
    assert torch.equal(gradient != 0, free)


def test_ratio_of_no_old_log_probs_is_one(rollout):
    own, _, advantages, _ = rollout.values()
    found = policy_loss_with_grad(own, None, advantages, reduction="none")
    expected = -advantages.expand_as(own)
    torch.testing.assert_close(found, (expected, expected), rtol=0, atol=0)
    leaf = own.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(policy_loss(leaf, None, advantages).sum(), leaf)
    torch.testing.assert_close(gradient, expected / own.numel())


def test_masked_mean_of_no_token_is_zero_and_constants_get_no_gradient(rollout):
    leaves = [each.clone().requires_grad_() for each in rollout.values()]
    policy_loss(*leaves, kl_coefficient=0.1).backward()
    assert [each.grad for each in leaves[1:]] == [None] * 3
    own = rollout["log_probs"].clone().requires_grad_()
    others = [each for name, each in rollout.items() if name != "log_probs"]
    nothing = torch.zeros(BATCH, LENGTH, dtype=torch.bool, device=own.device)
    for reduction in ("mean", "sequence_mean"):
        loss = policy_loss(own, *others, mask=nothing, reduction=reduction)
        (gradient,) = torch.autograd.grad(loss, own)
        assert loss == 0
        assert not gradient.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_loss_has_the_dtype_of_the_tensors_and_digits_of_small_weights(dtype, rollout, mask):
    narrow = [each.to(dtype) for each in rollout.values()]
    loss = policy_loss(*narrow, mask=mask, kl_coefficient=0.1)
    expected = policy_loss(*(each.double() for each in narrow), mask=mask, kl_coefficient=0.1)
    assert loss.dtype == dtype
    torch.testing.assert_close(loss, expected.to(dtype))


def test_third_estimate_keeps_digits_where_the_policies_agree(device):
    """PyTorch's exp(d) - d - 1 of float32 has none left, nor has its gradient below 1e-7."""
    near = torch.logspace(-7, -1, 500, dtype=torch.float32, device=device)
    own = torch.zeros_like(near).requires_grad_()
    loss = kl_estimate(own, near, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), own)
    wide = near.double()
    torch.testing.assert_close(gradient.double(), -torch.expm1(wide), rtol=3e-7, atol=0)
    error = (loss.detach().double() - (torch.expm1(wide) - wide)).abs()
    assert (error <= 2e-7 * wide).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reduction": "token-mean"}, "reduction must be 'none', 'mean', 'sum', 'sequence_mean'"),
        ({"dual_clip": 0.5}, "dual_clip must be above 1, or 0 for none, but is 0.5"),
        ({"kl_coefficient": 0.1}, "a kl_coefficient needs reference_log_probs"),
        ({"reduction": "mean", "divisor": 3.0}, "reduction 'mean' takes no divisor"),
        ({"clip_low": 1.5}, "clip_low must be at least 0 and at most 1"),
        ({"clip_high": -0.1}, "clip_high must be at least 0"),
    ],
    ids=lambda each: ",".join(each) if isinstance(each, dict) else "",
)
def test_wrong_settings_raise(settings, message, rollout):
    own, old, advantages, _ = rollout.values()
    with pytest.raises(ValueError, match=message):
        policy_loss(own, old, advantages, **settings)
    for estimator in (0, 4, 1.5):
        with pytest.raises(ValueError, match="estimator must be an integer from 1 to 3"):
            kl_estimate(own, old, estimator=estimator)
