"""A model that is trained with losscli's loss becomes the model that torch's loss makes."""

import itertools
from typing import Any

import pytest
import torch

from docs import hidden_states, language_model
from docs.training import data, train
from losscli import nn
from losscli.losses import LOSSES

STEPS = 40
OF_ANY_NUMBERS = [
    spec.module.__name__
    for spec in LOSSES.values()
    if hasattr(torch.nn, spec.module.__name__) and all(d.is_real for d in spec.domains.values())
]


@pytest.mark.parametrize("name", OF_ANY_NUMBERS)
def test_both_losses_train_the_same_model(name):
    modules: tuple[Any, Any] = nn, torch.nn
    losses, models = zip(
        *(list(train(getattr(each, name)(), STEPS))[-1] for each in modules), strict=True
    )

    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for own, torchs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-4, atol=1e-4)


def test_training_has_learned_something():
    losses = [loss for loss, _ in itertools.islice(train(nn.SmoothL1Loss()), STEPS)]
    assert losses[-1] < 0.9 * losses[0]
    inputs, targets = data()
    assert inputs.shape == (4096, 8)
    assert targets.shape == (4096, 1)


def test_both_cross_entropies_train_the_same_language_model():
    both = zip(
        language_model.train(nn.CrossEntropyLoss(), STEPS),
        language_model.train(torch.nn.CrossEntropyLoss(), STEPS),
        strict=True,
    )
    losses = [(own, torchs) for (own, _), (torchs, _) in both]
    assert [own for own, _ in losses] == pytest.approx([torchs for _, torchs in losses], rel=1e-4)
    assert losses[-1][0] < 0.7 * losses[0][0]


def test_hidden_states_train_the_same_model_as_logits_in_a_third_of_the_memory():
    both = zip(
        hidden_states.steps(hidden_states.of_hidden_states),
        hidden_states.steps(hidden_states.of_logits),
        strict=True,
    )
    losses = [(own(), torchs()) for own, torchs in itertools.islice(both, 8)]
    assert [own for own, _ in losses] == pytest.approx([torchs for _, torchs in losses], rel=1e-4)
    assert losses[-1][0] < losses[0][0]
    own, torchs = map(hidden_states.peak, (hidden_states.of_hidden_states, hidden_states.of_logits))
    assert own < torchs / 3
