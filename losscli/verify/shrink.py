"""Searches a smaller case that fails the same check as a large one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from losscli.cases import Case
from losscli.implementations import find_implementation
from losscli.layouts import impossible, input_shape, target_shape
from losscli.runs.records import FAIL, VerifyResult
from losscli.verify import runner
from losscli.verify.checks import Check, find_check

EXTENTS = (1, 2, 3, 7, 16, 37, 128, 509)
"""Of each dimension, the smallest first: it ends with the first that fails."""
SECONDS = 10.0
"""For all failures of a run together; the try under way is finished."""


class Shrinker:
    """Shrinks the first failure of each implementation, check and loss.

    Not one that broke a GPU: on what is left of it all that is smaller would fail as well.
    """

    def __init__(
        self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._left, self._clock = seconds, clock
        self._seen: set[tuple[str, str, str]] = set()

    def follow(self, results: Iterable[VerifyResult]) -> Iterator[VerifyResult]:
        """Yield results, and after a failure that of a smaller case, where one fails."""
        for result in results:
            yield result
            key = (result.implementation, result.check, result.case.loss)
            if result.status == FAIL and result.code != "broke_device" and key not in self._seen:
                self._seen.add(key)
                yield from self._shrink(result)

    def _shrink(self, result: VerifyResult) -> Iterator[VerifyResult]:
        """Yield the failure of the smallest case that is tried and fails."""
        trial = find_implementation(result.implementation), find_check(result.check)
        loosened = result.tolerance_ulp
        for case in _smaller(result.case, trial[1]):
            start = self._clock()
            if self._left <= 0:
                return
            job = runner.Job(case, (trial,), loosened)
            again = [r for r in runner.run(job) if (r.check, r.status) == (result.check, FAIL)]
            self._left -= self._clock() - start
            if again:
                yield replace(again[0], shrunk_from=result.case.name)
                return


def _smaller(case: Case, check: Check) -> Iterator[Case]:
    """Yield smaller cases of as many dimensions, as far as the check asks for its own."""
    tried: list[Case] = []
    for limit in EXTENTS:
        size = tuple(min(extent, limit) for extent in case.size)
        if impossible(size, case.layout):
            continue
        usual = size if case.target_shape == case.shape else case.spec.default_target_shape(size)
        shapes = input_shape(size, case.layout), target_shape(size, case.layout, usual)
        smaller = check.adapt(replace(case, shape=shapes[0], target_shape=shapes[1]))
        if smaller.elements < case.elements and smaller not in tried:
            tried.append(smaller)
            yield smaller
