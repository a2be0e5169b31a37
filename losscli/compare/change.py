"""How much longer one run took than another, and the interval that noise leaves. Without torch.

Samples vary within a run. Between runs all of them shift together, as memory addresses and clocks
differ. The spread between a run's processes shows a part of that shift, the controls of
:mod:`losscli.compare.noise` all of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from losscli.runs.spread import Z95, deviation

CONFIDENCE = 0.99
"""The confidence that all intervals of a comparison hold at once."""
Array = NDArray[np.float64]

_BATCHES = 8
"""Successive parts of a run, whose medians show a drift."""
_BATCHED = 3 * _BATCHES
_FEWEST = 3
"""Samples from which a spread can be estimated."""
_ORDERED = 6
"""Samples of which two enclose the median with 95 %."""


@dataclass(frozen=True)
class Change:
    """A ratio of two times, and the interval that noise leaves."""

    value: float
    low: float
    high: float


def uncertainties(samples: Sequence[Sequence[float]]) -> Array:
    """Return the standard error of the log of each list's median.

    It is the larger one of the samples' spread and of the medians of successive parts, which show a
    drift. Infinite for fewer than three samples.
    """
    errors = np.full(len(samples), math.inf)
    counts = np.array([len(each) for each in samples], dtype=int)
    for count in np.unique(counts):
        if count < _FEWEST:
            continue
        chosen = np.flatnonzero(counts == count)
        logs = np.log(np.array([samples[index] for index in chosen.tolist()], dtype=np.float64))
        errors[chosen] = np.maximum(_error_by_order(logs), _error_by_parts(logs))
    return errors


def process_errors(medians: Sequence[Sequence[float]]) -> Array:
    """Return the standard error of the log of each median, from the spread between processes.

    ``medians`` are those of each process; the error is NaN for a single process. Few processes may
    agree by luck, so no error is less than the typical one.
    """
    errors = np.full(len(medians), math.nan)
    typical: list[float] = []
    for index, each in enumerate(medians):
        if len(each) > 1:
            errors[index] = deviation([math.log(m) for m in each]) / math.sqrt(len(each))
            freedom = len(each) - 1
            # The median of a variance of so few is below the variance itself.
            typical.append(errors[index] / (1 - 2 / (9 * freedom)) ** 1.5)
    return np.maximum(errors, np.median(typical)) if typical else errors


def ratios(
    before: Array, after: Array, errors: Array, drifts: Array, noise: Array, times: int = 1
) -> list[Change]:
    """Return each ratio of medians, in an interval that holds relative to the controls too.

    ``errors``: standard errors of the logs by samples. ``drifts``: logs of the controls' ratios, or
    0. ``noise``: standard deviations of the logs between runs. ``times``: how many comparisons like
    this one have to hold at once.
    """
    if not len(before):
        return []
    logs = np.log(after / before)
    half = joint_z(len(logs) * times) * np.hypot(errors, noise)
    low = np.exp(np.minimum(logs, logs - drifts) - half)
    high = np.exp(np.maximum(logs, logs - drifts) + half)
    values = (array.tolist() for array in (np.exp(logs), low, high))
    return [Change(*each) for each in zip(*values, strict=True)]


def joint_z(count: int) -> float:
    """Return the standard deviations for which ``count`` intervals hold at once (Bonferroni)."""
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(count, 1))


def _error_by_order(logs: Array) -> Array:
    """Return the standard error by order statistics, or the range of few samples."""
    ordered = np.sort(logs, axis=1)
    count = logs.shape[1]
    if count < _ORDERED:
        return np.asarray(ordered[:, -1] - ordered[:, 0])
    middle, half = (count - 1) / 2, Z95 * math.sqrt(count) / 2
    low, high = max(math.floor(middle - half), 0), min(math.ceil(middle + half), count - 1)
    return np.asarray((ordered[:, high] - ordered[:, low]) / 2 / Z95)


def _error_by_parts(logs: Array) -> Array:
    count = logs.shape[1]
    if count < _BATCHED:
        return np.zeros(len(logs))
    size = count // _BATCHES
    parts = logs[:, : size * _BATCHES].reshape(len(logs), _BATCHES, size)
    return np.asarray(np.std(np.median(parts, axis=2), axis=1, ddof=1) / math.sqrt(_BATCHES))
