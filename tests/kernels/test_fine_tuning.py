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


GRPO: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo without a divergence": {"kl_coefficient": 0.0},
    "bnpo": {"reduction": "mean"},
    "dapo": {"reduction": "sum", "divisor": 37.0, "clip_high": 0.28},
    "dr_grpo": {"reduction": "sequence_sum", "divisor": 16.0},
    "cispo": {
        "reduction": "sum",
        "divisor": 37.0,
        "cispo": True,
        "clip_low": 1.0,
        "clip_high": 4.0,
    },
    "two-sided": {"dual_clip": 2.0},
}


def trl_grpo(
    logits,
    tokens,
    mask,
    old,
    reference,
    rewards,
    *,
    loss_type,
    beta,
    epsilon_low,
    epsilon_high,
    delta,
):
    each = rewards.view(-1, GROUP)
    mean = each.mean(1).repeat_interleave(GROUP)
    std = each.std(1).repeat_interleave(GROUP)
    advantages = ((rewards - mean) / (std + 1e-4)).unsqueeze(1)
    log_probs = log_probs_of(logits, tokens)
    divergence = torch.exp(reference - log_probs) - (reference - log_probs) - 1
    ratio = torch.exp(log_probs - old)
    if loss_type == "cispo":
        loss = -ratio.clamp(max=epsilon_high).detach() * advantages * log_probs
    else:
        clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)
        ratio = ratio if delta is None else ratio.clamp(max=delta)
        loss = -torch.min(ratio * advantages, clipped * advantages)
    loss = loss + beta * divergence
    if loss_type == "grpo":
        return ((loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    if loss_type == "bnpo":
        return (loss * mask).sum() / mask.sum().clamp(min=1.0)
    if loss_type == "dr_grpo":
        return (loss * mask).sum() / (loss.size(0) * 16)
    return (loss * mask).sum() / 37


@pytest.mark.parametrize("form", GRPO)
def test_grpo_and_its_relatives(form, normal, tokens, mask):
    logits = 2 * normal(BATCH, LENGTH, CLASSES)
    near = log_probs_of(logits, tokens)
    old, reference = near + 0.5 * normal(BATCH, LENGTH), near + 0.3 * normal(BATCH, LENGTH)
    rewards, settings = normal(BATCH), GRPO[form]
    grpo = example("grpo")
    known = form if form in ("grpo", "bnpo", "dapo", "dr_grpo", "cispo") else "grpo"
    same(
        lambda at: grpo(at, tokens, mask, old, reference, rewards, GROUP, **settings),
        lambda at: trl_grpo(
            at,
            tokens,
            mask,
            old,
            reference,
            rewards,
            loss_type=known,
            beta=float(settings.get("kl_coefficient", 0.04)),
            epsilon_low=0.2,
            epsilon_high=5.0 if known == "cispo" else float(settings.get("clip_high", 0.2)),
            delta=settings.get("dual_clip"),
        ),
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
