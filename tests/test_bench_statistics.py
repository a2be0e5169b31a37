"""Order statistics against values worked out by hand."""

import math
from math import comb

import pytest

from losscli.bench.statistics import half_width, median_interval, quantile, summarize


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.0, 1.0), (0.2, 1.8), (0.5, 3.0), (0.8, 4.2), (1.0, 5.0)]
)
def test_quantiles_are_linear_between_neighbours(fraction, expected):
    assert quantile([1.0, 2.0, 3.0, 4.0, 5.0], fraction) == pytest.approx(expected)


def test_summary_sorts_but_keeps_the_samples_in_the_order_taken():
    seconds = summarize([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (seconds.median, seconds.min) == (3.0, 1.0)
    assert (seconds.p20, seconds.p80) == pytest.approx((1.8, 4.2))
    assert seconds.samples == (5.0, 1.0, 3.0, 2.0, 4.0)


def test_one_sample_is_its_own_distribution():
    seconds = summarize([2.0])
    assert (seconds.median, seconds.p20, seconds.p80, seconds.min) == (2.0, 2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("count", "interval"),
    [
        (5, None),  # P(all on one side) = 1/32 is more than 1/40
        (6, (1, 6)),
        (10, (2, 9)),  # the tables of the sign test
        (20, (6, 15)),
        (100, (40, 61)),
    ],
)
def test_interval_of_the_median_is_that_of_the_sign_test(count, interval):
    samples = [float(value) for value in range(count, 0, -1)]
    assert median_interval(samples) == interval


@pytest.mark.parametrize("count", [6, 7, 31, 250])
def test_interval_covers_95_percent_and_a_narrower_one_does_not(count):
    low, high = median_interval([float(value) for value in range(count)])
    rank = int(low)
    assert high == count - 1 - rank

    def coverage(index):
        return 1 - 2 * sum(comb(count, k) for k in range(index + 1)) / 2**count

    assert coverage(rank) >= 0.95 > coverage(rank + 1)


def test_half_width_is_relative_to_the_median():
    assert half_width([9.0, 10.0, 10.0, 10.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert half_width([10.0] * 2000) == 0


def test_too_few_samples_are_never_narrow():
    assert half_width([1.0] * 5) == math.inf
