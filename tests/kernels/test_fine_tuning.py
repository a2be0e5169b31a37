"""The lines of docs/training-code.md on fine-tuning equal the formulas of TRL, written again."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from losscli.operators import registration as registration  # defines the operators
from tests.documents import ROOT

from .test_policy import ESTIMATES, of_tokens

PAGE = (ROOT / "docs" / "training-code.md").read_text()
PROMPTS, GROUP, LENGTH, CLASSES = 3, 4, 9, 50
BATCH = PROMPTS * GROUP


def example(name: str) -> Callable[..., Tensor]:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (block,) = (each for each in blocks if f"def {name}(" in each)
    found: dict[str, Any] = {}
    exec(compile(block, "training-code.md", "exec"), found)
    function: Callable[..., Tensor] = found[name]
    return function


@pytest.fixture
def normal(device):
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device)

    return drawn


@pytest.fixture
def tokens(device):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(CLASSES, (BATCH, LENGTH), generator=generator).to(device)


@pytest.fixture
def mask(device):
    """Completions of different lengths."""
    lengths = torch.arange(BATCH) % LENGTH + 1
    return (torch.arange(LENGTH) < lengths[:, None]).to(device)


def same(found, expected, at):
    results = []
    for function in (found, expected):
        leaf = at.clone().requires_grad_()
        loss = function(leaf)
        results.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    torch.testing.assert_close(*results, rtol=1e-11, atol=1e-14)


def log_probs_of(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def means_of_sequences(loss, mask):
    return ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()


def over(divisor):
    return lambda loss, mask: (loss * mask).sum() / divisor


PPO = {"clip_low": 0.2, "clip_high": 0.2}
CISPO = {"cispo": True, "clip_low": 1.0, "clip_high": 4.0}
GRPO: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[..., Tensor]]] = {
    "grpo": ({}, PPO, means_of_sequences),
    "grpo without a divergence": ({"kl_coefficient": 0.0}, PPO, means_of_sequences),
    "bnpo": ({"reduction": "mean"}, PPO, lambda loss, mask: over(mask.sum())(loss, mask)),
    "dapo": (
        {"reduction": "sum", "divisor": 37.0, "clip_high": 0.28},
        PPO | {"clip_high": 0.28},
        over(37),
    ),
    "dr_grpo": ({"reduction": "sequence_sum", "divisor": 16.0}, PPO, over(BATCH * 16)),
    "cispo": ({"reduction": "sum", "divisor": 37.0, **CISPO}, CISPO, over(37)),
    "two-sided": ({"dual_clip": 2.0}, PPO | {"dual_clip": 2.0}, means_of_sequences),
}
"""Settings, the clips that they make, and what becomes of the losses of tokens."""


@pytest.mark.parametrize("form", GRPO)
def test_grpo_and_its_relatives(form, normal, tokens, mask):
    logits = 2 * normal(BATCH, LENGTH, CLASSES)
    near = log_probs_of(logits, tokens)
    old, reference = near + 0.5 * normal(BATCH, LENGTH), near + 0.3 * normal(BATCH, LENGTH)
    rewards, (settings, clips, reduced) = normal(BATCH), GRPO[form]
    grpo = example("grpo")

    def expected(logits):
        """What GRPOTrainer computes of a batch."""
        each = rewards.view(-1, GROUP)
        advantages = (each - each.mean(1, keepdim=True)) / (each.std(1, keepdim=True) + 1e-4)
        log_probs = log_probs_of(logits, tokens)
        loss = of_tokens(log_probs, old, advantages.view(-1, 1), **clips)
        loss = loss + settings.get("kl_coefficient", 0.04) * ESTIMATES[3](log_probs, reference)
        return reduced(loss, mask)

    same(
        lambda at: grpo(at, tokens, mask, old, reference, rewards, GROUP, **settings),
        expected,
        logits,
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_dpo(label_smoothing, normal, tokens, mask):
    """TRL's loss of type sigmoid."""
    beta, references = 0.3, normal(2, BATCH // 2)
    dpo, sequence_log_probs = example("dpo"), example("sequence_log_probs")

    def found(logits):
        answers = sequence_log_probs(logits, tokens, mask).chunk(2)
        return dpo(*answers, *references, beta, label_smoothing)

    def expected(logits):
        chosen, rejected = (log_probs_of(logits, tokens) * mask).sum(-1).chunk(2)
        difference = (chosen - rejected) - (references[0] - references[1])
        right, wrong = logsigmoid(beta * difference), logsigmoid(-beta * difference)
        return (-right * (1 - label_smoothing) - wrong * label_smoothing).mean()

    same(found, expected, normal(BATCH, LENGTH, CLASSES))


@pytest.mark.parametrize("shift", [-3.0, 3.0], ids=["divergence below 0", "divergence above 0"])
def test_kto(shift, normal, device):
    """TRL's loss of type kto, whose estimate of the divergence is 0 at least."""
    beta, weights = 0.2, (1.0, 1.3)
    reference, others, reference_others = normal(BATCH), normal(BATCH) + shift, normal(BATCH)
    desirable = torch.arange(BATCH, device=device) % 3 > 0
    kto = example("kto")

    def expected(log_probs):
        divergence = (others - reference_others).mean().clamp(min=0)
        ratios = log_probs - reference
        chosen = 1 - torch.sigmoid(beta * (ratios[desirable] - divergence))
        rejected = 1 - torch.sigmoid(beta * (divergence - ratios[~desirable]))
        return torch.cat([weights[0] * chosen, weights[1] * rejected]).mean()

    same(
        lambda at: kto(at, reference, desirable, others, reference_others, beta, weights),
        expected,
        normal(BATCH),
    )


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
def test_distillation(beta, normal, mask):
    """The generalised divergence of TRL's GKDTrainer, over the tokens that count."""
    teacher, temperature = normal(BATCH, LENGTH, CLASSES), 0.9
    distillation = example("distillation")

    def expected(student):
        own = (student / temperature).log_softmax(-1)
        other = (teacher / temperature).log_softmax(-1)

        def divergence(of, against):
            return of.exp() * (of - against)

        if beta in (0, 1):
            found = divergence(own, other) if beta else divergence(other, own)
        else:
            mixture = torch.log((1 - beta) * own.exp() + beta * other.exp())
            found = beta * divergence(other, mixture) + (1 - beta) * divergence(own, mixture)
        return found[mask].sum() / mask.sum()

    same(lambda at: distillation(at, teacher, mask, beta), expected, normal(BATCH, LENGTH, CLASSES))


@pytest.mark.parametrize("reverse", [False, True])
def test_distillation_from_a_server(reverse, normal, mask):
    """Of the k most likely tokens of a teacher, and a bin for the probability that is left."""
    log_probs, numbers = normal(BATCH, LENGTH, CLASSES).log_softmax(-1).topk(6)
    distillation = example("distillation_from_a_server")

    def with_rest(known):
        return torch.cat([known, torch.log1p(-known.exp().sum(-1, keepdim=True))], -1)

    def expected(student):
        own = with_rest(student.log_softmax(-1).gather(-1, numbers))
        first, second = with_rest(log_probs), own
        if reverse:
            first, second = second, first
        return (first.exp() * (first - second))[mask].sum() / mask.sum()

    same(
        lambda at: distillation(at, numbers, log_probs, mask, reverse),
        expected,
        normal(BATCH, LENGTH, CLASSES),
    )
