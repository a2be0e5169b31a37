"""Order statistics against values computed by hand."""

import math
import random
from itertools import pairwise
from math import comb
from statistics import NormalDist
from typing import Any

import numpy
import pytest

from losscli.bench.statistics import (
    half_width,
    median_interval,
    next_run_half_width,
    paired_ratios,
    speedups,
    student_quantile,
    summarize,
    summarize_processes,
)
from losscli.runs.measurements import Speedup, quantile


def test_quantiles_are_linear_between_neighbours():
    for fraction, expected in ((0.0, 1.0), (0.2, 1.8), (0.5, 3.0), (0.8, 4.2), (1.0, 5.0)):
        assert quantile([1.0, 2.0, 3.0, 4.0, 5.0], fraction) == pytest.approx(expected)


def test_summary_sorts_but_keeps_the_samples_in_the_order_taken():
    seconds = summarize([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (seconds.median, seconds.min) == (3.0, 1.0)
    assert (seconds.p95, seconds.p99, seconds.max) == pytest.approx((4.8, 4.96, 5.0))
    assert (seconds.p20, seconds.p80) == pytest.approx((1.8, 4.2))
    assert seconds.samples == (5.0, 1.0, 3.0, 2.0, 4.0)
    one = summarize([2.0])
    assert (one.median, one.p20, one.p80, one.min) == (2.0, 2.0, 2.0, 2.0)


def test_interval_of_the_median_is_that_of_the_sign_test():
    for count, interval in (
        (5, None),  # P(all on one side) = 1/32 is more than 1/40
        (6, (1, 6)),
        (10, (2, 9)),  # the tables of the sign test
        (20, (6, 15)),
        (100, (40, 61)),
    ):
        assert median_interval([float(value) for value in range(count, 0, -1)]) == interval


def test_interval_covers_95_percent_and_a_narrower_one_does_not():
    for count in (6, 7, 31, 250):
        interval = median_interval([float(value) for value in range(count)])
        assert interval is not None
        rank = int(interval[0])
        assert interval[1] == count - 1 - rank
        tails = [2 * sum(comb(count, k) for k in range(r + 1)) / 2**count for r in (rank, rank + 1)]
        assert 1 - tails[0] >= 0.95 > 1 - tails[1]


def test_half_width_is_relative_to_the_median():
    assert half_width(summarize([9.0, 10.0, 10.0, 10.0, 10.0, 11.0])) == pytest.approx(0.1)
    assert half_width(summarize([10.0] * 2000)) == 0
    assert half_width(summarize([1.0] * 5)) == math.inf


VERDICTS = {
    (1.011, 1.5): "faster",
    (1.009, 1.04): "unclear",  # perhaps faster by less than counts
    (0.5, 0.989): "slower",
    (0.5, 0.992): "unclear",
    (0.972, 1.029): "same",
    (1.001, 1.02): "same",  # different, but by less than counts
    (0.96, 1.0): "unclear",
    (1.0, 1.04): "unclear",
    (0.5, 2.0): "unclear",
}


def test_verdict_follows_from_the_whole_interval_and_that_of_the_inverse_is_the_opposite():
    opposite = {"faster": "slower", "slower": "faster", "same": "same", "unclear": "unclear"}
    for (low, high), verdict in VERDICTS.items():
        assert Speedup(math.sqrt(low * high), low, high).verdict == verdict, (low, high)
    for low in (0.5, 0.975, 0.985, 1.002, 1.02):
        for width in (1.0, 1.01, 1.03, 1.5):
            ratio = Speedup(low, low, low * width)
            turned = Speedup(1 / low, 1 / ratio.high, 1 / ratio.low)
            assert turned.verdict == opposite[ratio.verdict], (low, width)


def approx(value: float) -> Any:
    return pytest.approx(value)


def draw(seed, count=60, scale=1.0, noise=0.01):
    """Draw realistic times: a floor, and occasional disturbances."""
    generator = numpy.random.default_rng(seed)
    return (scale * (1 + noise * generator.exponential(size=count))).tolist()


def test_a_ratio_is_the_median_over_the_rounds():
    samples = {"a": [1.0, 2.0, 4.0], "b": [3.0, 4.0, 8.0]}
    assert paired_ratios(samples)["a"]["b"] == Speedup(approx(2.0), 2.0, 3.0, False)


def test_ratio_of_swapped_implementations_is_the_inverse():
    for count in (5, 20, 31):
        ratios = paired_ratios({"a": draw(1, count), "b": draw(2, count, scale=2.0)})
        ours, theirs = ratios["a"]["b"], ratios["b"]["a"]
        assert ours.low < ours.value < ours.high
        turned = (1 / theirs.value, 1 / theirs.high, 1 / theirs.low)
        assert (ours.value, ours.low, ours.high) == pytest.approx(turned)


def test_two_speeds_or_a_drift_of_whole_rounds_make_no_difference():
    speeds = numpy.random.default_rng(3).choice([1.0, 1.4], size=60)
    for rounds in (speeds, numpy.linspace(1, 2, 60)):
        a, b = ((rounds * draw(seed, noise=1e-3)).tolist() for seed in (4, 5))
        assert paired_ratios({"a": a, "b": b})["a"]["b"].verdict == "same"


def versus(seed, count, scale=1.0):
    """Return the ratio of two samples that differ by a scale and by noise."""
    samples = {"a": draw(2 * seed, count), "b": draw(2 * seed + 1, count, scale)}
    return paired_ratios(samples)["a"]["b"]


@pytest.mark.parametrize("count", [30, 31, 120])
@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "same"), (1.05, "faster"), (0.95, "slower")])
def test_five_percent_is_found_and_equal_code_is_not(count, scale, verdict):
    assert sum(versus(seed, count, scale).verdict == verdict for seed in range(40)) >= 39


def test_interval_contains_the_true_ratio_in_95_percent():
    for count in (11, 40):
        ratios = [versus(seed, count) for seed in range(300)]
        assert sum(ratio.low <= 1 <= ratio.high for ratio in ratios) >= 0.93 * 300


def test_few_rounds_have_an_interval_of_their_whole_span_and_are_unclear():
    found = paired_ratios({"a": [1.0, 2.0, 4.0], "b": [8.0, 8.0, 12.0]})["a"]["b"]
    assert found == Speedup(approx(4.0), 3.0, 8.0, confident=False)
    for count, verdict in ((3, "unclear"), (5, "unclear"), (6, "faster")):
        ratios = paired_ratios({"a": [1.0] * count, "b": [2.0] * count})
        assert ratios["a"]["b"].verdict == verdict
        assert ratios["b"]["a"].verdict == {"faster": "slower"}.get(verdict, verdict)
    assert paired_ratios({"a": [1.0]}) == {"a": {}}
    assert paired_ratios({}) == {}


def test_student_quantiles_are_those_of_the_tables():
    tables = {1: 12.706, 3: 3.182, 11: 2.201, 30: 2.042, 10**6: 1.960}
    for freedom, due in tables.items():
        assert student_quantile(freedom) == pytest.approx(due, abs=3e-3)


def test_half_width_of_the_next_run_is_that_between_processes_or_within_them():
    differing = 4.303 * 1.0 / math.sqrt(3) * math.sqrt(2)
    assert next_run_half_width([1.0, 2.0, 3.0], [0.0] * 3) == pytest.approx(differing)
    agreeing = NormalDist().inv_cdf(0.975) * 0.1 / math.sqrt(4) * math.sqrt(2)
    assert next_run_half_width([1.0] * 4, [0.1] * 4) == pytest.approx(agreeing)


def measured(noise, processes, between, within, rounds):
    """Return the ratio of two that truly are equal, as one run measures it."""

    def take():
        shift = noise.gauss(0, between)
        return [math.exp(shift + noise.gauss(0, within)) for _ in range(rounds)]

    ours, theirs = ([take() for _ in range(processes)] for _ in range(2))
    several = summarize_processes if processes > 1 else lambda taken: summarize(taken[0])
    timed = {"a": several(ours), "b": several(theirs)}
    return speedups(timed)["a"]["b"]


def held(processes, between, within, rounds, runs):
    """Return how many intervals contain the ratio of the next run."""
    noise = random.Random(7)
    found = [measured(noise, processes, between, within, rounds) for _ in range(runs)]
    return sum(one.low <= other.value <= one.high for one, other in pairwise(found))


def test_interval_contains_the_ratio_of_the_next_run():
    for processes in (2, 4, 6):
        for between, within in ((0.1, 0.01), (0.02, 0.02), (0.0, 0.05)):
            assert held(processes, between, within, 11, 201) >= 0.92 * 200
    assert held(1, 0.1, 0.01, 44, 101) < 0.3 * 100  # from samples alone it does not


def test_verdict_is_unclear_where_processes_disagree():
    ours = [[1.0] * 10] * 4
    theirs = [[2.1] * 10, [7.4] * 10, [0.9] * 10, [1.8] * 10]
    timed = {"a": summarize_processes(ours), "b": summarize_processes(theirs)}
    ratio = speedups(timed)["a"]["b"]
    assert ratio.processes == pytest.approx((2.1, 7.4, 0.9, 1.8))
    assert ratio.value == pytest.approx(math.prod(ratio.processes) ** 0.25)
    assert ratio.verdict == "unclear"


def test_ratio_of_swapped_processes_is_the_inverse():
    noise = random.Random(3)
    taken = [[[math.exp(noise.gauss(0, 0.1)) for _ in range(9)] for _ in range(4)] for _ in "ab"]
    found = speedups({name: summarize_processes(t) for name, t in zip("ab", taken, strict=True)})
    one, other = found["a"]["b"], found["b"]["a"]
    assert (one.low, one.value) == pytest.approx((1 / other.high, 1 / other.value))


def test_samples_are_stored_by_process():
    seconds = summarize_processes([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]])
    assert seconds.samples == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert seconds.processes == (2, 1, 3)
    assert seconds.by_process == [(1.0, 2.0), (3.0,), (4.0, 5.0, 6.0)]
    assert summarize([1.0, 2.0]).by_process == [(1.0, 2.0)]
