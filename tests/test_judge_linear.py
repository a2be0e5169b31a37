"""Files that define a loss of hidden states are found, and their operands by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from losscli.implementations.files import read_file
from losscli.judge.against_loss import SIZES, check_arguments, loss_of
from losscli.losses import HIDDEN_STATE, LINEAR_LOSSES


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        ("input, linear_weight, target", "linear_cross_entropy"),
        ("hidden, weight, labels", "linear_cross_entropy"),
        ("input, linear_weight, target, linear_bias", "biased_linear_cross_entropy"),
    ],
)
def test_a_file_with_the_function_is_of_the_loss(arguments: str, loss: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"def linear_cross_entropy({arguments}):\n    return input\n")
    file = read_file(str(path))

    assert loss_of(file) == loss
    check_arguments(file, file.definition(loss), loss, ())
    order = file.definition(loss).signature.order(LINEAR_LOSSES[loss].names)
    assert order[:3] == ("input", "linear_weight", "target")


def test_losses_of_hidden_states_are_judged_at_sizes_that_they_take() -> None:
    own = SIZES[HIDDEN_STATE]
    every = (
        own.small,
        *own.checked,
        own.timed_quickly,
        *(s for t in own.timed.values() for s in t),
    )
    assert all(LINEAR_LOSSES["linear_cross_entropy"].takes(size) for size in every)
