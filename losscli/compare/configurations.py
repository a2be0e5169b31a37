"""Configurations in which losscli's kernel is slower than its fastest baseline, beyond noise."""

import math
from operator import itemgetter

from losscli.compare.row_keys import median_of
from losscli.implementations import CUSTOM, is_own
from losscli.runs.grouping import grouped
from losscli.runs.judgements import DIFFERENT_BEYOND, SLOWER
from losscli.runs.records import BenchResult, Headline, Run, SlowerConfiguration

RISK = 0.01
"""The risk that a run calls any equal configuration slower, as some ratios are by chance."""


class Configuration(dict[str, BenchResult]):
    """The results of a case and pass, by implementation."""

    slower_than: frozenset[str] = frozenset()
    """The baselines that custom is slower than."""
    too_short: bool = False
    """Whether custom was behind, but in too few rounds for a test."""

    @property
    def custom(self) -> BenchResult:
        """The result of losscli's kernel."""
        return self[CUSTOM]

    @property
    def baselines(self) -> list[BenchResult]:
        """The timed baselines."""
        return [r for name, r in self.items() if r.seconds and not is_own(name)]

    @property
    def best_baseline(self) -> BenchResult:
        """The baseline against which custom is worst; both are timed."""

        def place(one: BenchResult) -> tuple[bool, float]:
            return one.implementation not in self.slower_than, self.ratio(one)

        return min(self.baselines, key=place)

    def ratio(self, baseline: BenchResult) -> float:
        """Return a baseline's time over custom's."""
        found = self.custom.ratios.get(baseline.implementation)
        return found.value if found else median_of(baseline) / median_of(self.custom)

    def is_behind(self, baseline: BenchResult) -> bool:
        """Tell whether custom is slower by more than a hundredth, noise aside."""
        return self.ratio(baseline) < 1 / (1 + DIFFERENT_BEYOND)


def headline(run: Run) -> Headline | None:
    """Count and name the configurations in which custom is slower; None without baselines."""
    found = compared(run)
    if not found:
        return None
    untimed = sum(each.custom.seconds is None for each in found)
    slower = tuple(_slower(each) for each in found if each.slower_than)
    short = sum(each.too_short for each in found)
    return Headline(len(found) - untimed, slower, short, untimed)


def _slower(each: Configuration) -> SlowerConfiguration:
    custom, baseline = each.custom, each.best_baseline
    row = custom.case.name, custom.pass_, custom.mode, custom.table
    return SlowerConfiguration(*row, baseline.implementation, each.ratio(baseline))


def compared(run: Run) -> list[Configuration]:
    """Return the configurations with custom and a timed baseline."""
    return [each for each in configurations(run) if CUSTOM in each and each.baselines]


def configurations(run: Run) -> list[Configuration]:
    """Gather the results of each case and pass, and test them by Holm's method."""
    by_key = grouped(run.of(BenchResult), lambda r: (r.table, r.case, r.pass_, r.mode))
    found = [Configuration((r.implementation, r) for r in results) for results in by_key.values()]
    comparisons = [
        (*_chance(each, baseline), each, baseline)
        for each in found
        if CUSTOM in each and each.custom.seconds
        for baseline in each.baselines
    ]
    left = len(comparisons)
    for chance, _, each, baseline in sorted(comparisons, key=itemgetter(0)):
        if chance > RISK / left:
            break
        each.slower_than |= {baseline.implementation}
        left -= 1
    for _, rounds, each, baseline in comparisons:
        if each.is_behind(baseline) and not each.slower_than and 0.5**rounds > RISK / left:
            each.too_short = True
    return found


def _chance(each: Configuration, baseline: BenchResult) -> tuple[float, int]:
    """Return the probability that custom is behind so often by chance, and the rounds."""
    assert each.custom.seconds
    assert baseline.seconds
    own, theirs = each.custom.seconds.samples, baseline.seconds.samples
    pairs = list(zip(own, theirs, strict=True)) if len(own) == len(theirs) else []
    behind = sum(its * (1 + DIFFERENT_BEYOND) < ours for ours, its in pairs)
    found = each.custom.ratios.get(baseline.implementation)
    if found and found.processes and found.verdict != SLOWER:  # rounds of a process are alike
        behind = 0
    rounds = len(pairs)
    if 2 * behind <= rounds:
        return 1.0, rounds
    # That a fair coin shows at least so many heads.
    ways = sum(math.comb(rounds, heads) for heads in range(behind, rounds + 1))
    return ways / (1 << rounds), rounds
