"""The intervals of ratios: wide enough to hold, and no wider."""

import math
import random

import numpy as np
import pytest

from losscli.compare.change import joint_z, ratios, uncertainties


def samples(count, spread=0.02, seed=0, drift=0.0):
    noise = random.Random(seed)
    return [math.exp(noise.gauss(0, spread) + drift * index / count) for index in range(count)]


def test_the_error_of_a_median_is_what_many_runs_show():
    medians = [np.log(np.median(samples(100, seed=seed))) for seed in range(400)]
    found = uncertainties([samples(100, seed=seed) for seed in range(400)])
    assert np.median(found) == pytest.approx(np.std(medians), rel=0.25)
    assert np.median(found) >= 0.95 * np.std(medians)


def test_more_samples_make_the_error_smaller():
    few, many = uncertainties([samples(20), samples(2000)])
    assert few > 4 * many


def test_a_run_that_drifts_is_less_certain():
    steady, drifting = uncertainties([samples(200), samples(200, drift=0.2)])
    assert drifting > 4 * steady


def test_few_samples_have_an_error_of_their_whole_span():
    (error,) = uncertainties([[1.0, 1.1, 1.05]])
    assert error == pytest.approx(math.log(1.1))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_two_or_fewer_samples_have_an_infinite_error(count):
    assert uncertainties([[1.0] * count, [1.0] * 9]).tolist() == [math.inf, 0.0]


def test_intervals_widen_with_the_number_of_rows():
    assert joint_z(1) == pytest.approx(2.576, abs=1e-3)
    assert joint_z(1) < joint_z(24) < joint_z(10_000) < 5.1


def one(before, after, error=0.0, drift=0.0, noise=0.0):
    given = [np.array([value]) for value in (before, after, error, drift, noise)]
    (ratio,) = ratios(given[0], given[1], given[2], given[3], given[4])
    return ratio


def test_without_noise_the_interval_is_the_ratio():
    ratio = one(2.0, 3.0)
    assert (ratio.low, ratio.value, ratio.high) == (1.5, 1.5, 1.5)


def test_both_kinds_of_noise_widen_the_interval():
    within, between, both = one(1, 1, error=0.01), one(1, 1, noise=0.01), one(1, 1, 0.01, 0, 0.01)
    assert within == between
    assert math.log(both.high) == pytest.approx(math.sqrt(2) * math.log(within.high))
    assert math.log(within.high) == pytest.approx(joint_z(1) * 0.01)


def test_interval_reaches_to_the_ratio_relative_to_the_controls():
    ratio = one(1.0, 1.2, drift=math.log(1.2))
    assert (ratio.low, ratio.high) == (pytest.approx(1.0), pytest.approx(1.2))
    ratio = one(1.0, 1.2, drift=math.log(0.8))
    assert (ratio.low, ratio.high) == (pytest.approx(1.2), pytest.approx(1.5))


def test_no_pairs_give_no_ratios():
    nothing = np.array([])
    assert ratios(nothing, nothing, nothing, nothing, nothing) == []
