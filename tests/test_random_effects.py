"""The interval of several processes, by simulations with a fixed seed."""

import math
import random
from itertools import pairwise
from statistics import NormalDist

import pytest

from losscli.bench.statistics import speedups, summarize, summarize_processes
from losscli.runs.random_effects import deviation, next_run_half_width, student_quantile


def test_student_quantiles_are_those_of_the_tables():
    tables = {1: 12.706, 3: 3.182, 11: 2.201, 30: 2.042, 10**6: 1.960}
    for freedom, quantile in tables.items():
        assert student_quantile(freedom) == pytest.approx(quantile, abs=3e-3)


def test_half_width_of_the_next_run_is_that_between_processes_or_within_them():
    assert deviation([1.0, 2.0, 3.0]) == pytest.approx(1.0)
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


def test_ratio_of_swapped_implementations_is_the_inverse():
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
