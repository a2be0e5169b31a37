"""How far apart two runs may be by chance: the controls tell it, or it is supposed."""

import random

import pytest

from losscli.compare.noise import (
    ENOUGH_CONTROLS,
    LEAST_NOISE,
    SUPPOSED_NOISE,
    noise_between_runs,
)


def test_without_controls_the_noise_between_runs_is_assumed():
    for device in ("cpu", "cuda"):
        assert noise_between_runs([0.0] * (ENOUGH_CONTROLS - 1), device) == SUPPOSED_NOISE[device]


def test_noise_between_runs_is_measured_by_controls():
    noise = random.Random(0)
    logs = [noise.gauss(0, 0.04) for _ in range(500)]
    assert noise_between_runs(logs, "cpu") == pytest.approx(0.04, rel=0.1)
    # That all of them are slower is noise too; that one is, is not.
    assert noise_between_runs([0.1] * 20, "cpu") > 0.1
    assert noise_between_runs([0.0] * 20 + [3.0], "cpu") == LEAST_NOISE["cpu"]
