"""Searches for a smaller case that fails the same check as a large one."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.cases.layouts import impossible
from losscli.implementations import Implementation, find_implementation
from losscli.losses import MODEL
from losscli.reasons import Code
from losscli.runs.records import FAIL, VerifyResult
from losscli.verify import runner
from losscli.verify.checks import Check, find_check

EXTENTS = (1, 2, 3, 7, 16, 37, 128, 509)
"""Extents of each dimension, the smallest first: shrinking ends with the first that fails."""
SECONDS = 10.0
"""Seconds for all failures of a run together; the current attempt is finished."""


class Shrinker:
    """Shrinks the first failure of each implementation, check and loss."""

    def __init__(
        self,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
        run: runner.RunJob = runner.run,
    ) -> None:
        self._left, self._clock, self._run = seconds, clock, run
        self._seen: set[tuple[str, str, str]] = set()

    def follow(
        self,
        results: Iterable[VerifyResult],
        files: Mapping[str, Implementation] = MappingProxyType({}),
    ) -> Generator[VerifyResult, None, None]:
        """Yield results, and failures of smaller cases after them; ``files`` as in ``plan``."""
        for result in results:
            yield result
            key = (result.implementation, result.check, result.case.loss)
            # A Model has fixed shapes.
            shrinks = result.code != Code.DEVICE_ERROR and result.case.spec.unit != MODEL
            if result.status == FAIL and shrinks and key not in self._seen:
                self._seen.add(key)
                name = result.implementation
                yield from self._shrink(result, files.get(name) or find_implementation(name))

    def _shrink(self, result: VerifyResult, one: Implementation) -> Iterator[VerifyResult]:
        trial = one, find_check(result.check)
        beside = {result.implementation: result.interleaved}
        for case in _smaller(result.case, trial[1]):
            start = self._clock()
            if self._left <= 0:
                return
            job = runner.Checks(case, (trial,), result.tolerance_ulp, beside)
            again = [r for r in self._run(job) if (r.check, r.status) == (result.check, FAIL)]
            self._left -= self._clock() - start
            if again:
                yield replace(again[0], shrunk_from=result.case.name)
                return


def _smaller(case: Case, check: Check) -> Iterable[Case]:
    sizes = (tuple(min(extent, limit) for extent in case.size) for limit in EXTENTS)
    able = (size for size in sizes if not impossible(size, case.layout))
    cases = (check.adapt(case.reshaped(size, layout=case.layout)) for size in able)
    return dict.fromkeys(each for each in cases if each.elements < case.elements)
