"""The intervals of ratios: wide enough to hold, and no wider; the noise that they are made of."""

import math
import random

import numpy as np
import pytest

from losscli.compare.change import joint_z, ratios, uncertainties
from losscli.compare.noise import (
    ENOUGH_CONTROLS,
    LEAST_NOISE,
    SUPPOSED_NOISE,
    noise_between_runs,
)


def samples(count, spread=0.02, seed=0, drift=0.0):
    noise = random.Random(seed)
    return [math.exp(noise.gauss(0, spread) + drift * index / count) for index in range(count)]


def test_the_error_of_a_median_is_what_many_runs_show():
    medians = [np.log(np.median(samples(100, seed=seed))) for seed in range(400)]
    found = uncertainties([samples(100, seed=seed) for seed in range(400)])
    assert np.median(found) == pytest.approx(np.std(medians), rel=0.25)
    assert np.median(found) >= 0.95 * np.std(medians)


def test_error_of_a_median_depends_on_the_samples_and_their_drift():
    few, many, steady, drifting, three, two, none = uncertainties(
        [
            *(samples(20), samples(2000), samples(200), samples(200, drift=0.2)),
            *([1.0, 1.1, 1.05], [1.0, 1.0], []),
        ]
    )
    assert few > 4 * many
    assert drifting > 4 * steady
    assert three == pytest.approx(math.log(1.1))  # the whole span
    assert uncertainties([[1.0], [1.0] * 9]).tolist() == [math.inf, 0.0]
    assert two == none == math.inf


def test_intervals_widen_with_the_number_of_rows():
    assert joint_z(1) == pytest.approx(2.576, abs=1e-3)
    assert joint_z(1) < joint_z(24) < joint_z(10_000) < 5.1


def one(before, after, error=0.0, drift=0.0, noise=0.0):
    given = [np.array([value]) for value in (before, after, error, drift, noise)]
    (ratio,) = ratios(given[0], given[1], given[2], given[3], given[4])
    return ratio


def test_both_kinds_of_noise_widen_the_interval():
    within, between, both = one(1, 1, error=0.01), one(1, 1, noise=0.01), one(1, 1, 0.01, 0, 0.01)
    assert within == between
    assert math.log(both.high) == pytest.approx(math.sqrt(2) * math.log(within.high))
    assert math.log(within.high) == pytest.approx(joint_z(1) * 0.01)


def test_interval_reaches_to_the_ratio_relative_to_the_controls():
    ratio = one(2.0, 3.0)
    assert (ratio.low, ratio.value, ratio.high) == (1.5, 1.5, 1.5)
    ratio = one(1.0, 1.2, drift=math.log(1.2))
    assert (ratio.low, ratio.high) == (pytest.approx(1.0), pytest.approx(1.2))
    ratio = one(1.0, 1.2, drift=math.log(0.8))
    assert (ratio.low, ratio.high) == (pytest.approx(1.2), pytest.approx(1.5))
    nothing = np.array([])
    assert ratios(nothing, nothing, nothing, nothing, nothing) == []


def test_noise_between_runs_is_assumed_or_measured_by_controls():
    for device in ("cpu", "cuda"):
        assert noise_between_runs([0.0] * (ENOUGH_CONTROLS - 1), device) == SUPPOSED_NOISE[device]
    noise = random.Random(0)
    logs = [noise.gauss(0, 0.04) for _ in range(500)]
    assert noise_between_runs(logs, "cpu") == pytest.approx(0.04, rel=0.1)
    # That all of them are slower is noise too; that one is, is not.
    assert noise_between_runs([0.1] * 20, "cpu") > 0.1
    assert noise_between_runs([0.0] * 20 + [3.0], "cpu") == LEAST_NOISE["cpu"]
