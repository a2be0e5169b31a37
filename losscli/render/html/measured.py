"""A bench run as the panels see it: its timed results, their cases, colours and places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from losscli.cases.case import Case, distinct_names
from losscli.compare.rows import mode_and_cache
from losscli.implementations import CUSTOM, is_own
from losscli.render.html.scales import Axis, byte_ticks
from losscli.render.html.svg import STYLES
from losscli.runs.columns import REFERENCE
from losscli.runs.grouping import grouped
from losscli.runs.records import BenchResult, Run
from losscli.units import format_size
from losscli.views.bench import LONG_PASSES, place, short_pass

_FIRST = (CUSTOM, REFERENCE, "functional", "compile")
"""Implementations that have the same colour in every report."""
BYTES = Axis("bytes that the pass has to move", byte_ticks, log=True)


def styles(names: Iterable[str]) -> dict[str, int]:
    """Return the colour of each implementation, the usual ones first."""
    given = list(dict.fromkeys(names))
    found = {name: index for index, name in enumerate(_FIRST) if name in given}
    others = [name for name in given if name not in found]
    free = STYLES - len(_FIRST)
    return found | {name: len(_FIRST) + index % free for index, name in enumerate(others)}


@dataclass(frozen=True)
class Measured:
    """A bench run with what several panels need of it."""

    run: Run
    styles: Mapping[str, int]
    """The colour of each implementation of the page."""

    @cached_property
    def results(self) -> list[BenchResult]:
        """All results, those without a time too."""
        return self.run.of(BenchResult)

    @cached_property
    def timed(self) -> list[BenchResult]:
        """The results with a time, each row once."""
        timed = (result for result in self.results if result.seconds)
        rows = grouped(timed, lambda r: (r.case, r.pass_, r.mode, r.cache, r.implementation))
        return [first for first, *_ in rows.values()]

    @cached_property
    def by_pass(self) -> dict[str, list[BenchResult]]:
        """The timed results of each pass, mode and cache, by its name."""
        return grouped(sorted(self.timed, key=place), pass_in_full)

    @cached_property
    def facets(self) -> dict[str, list[BenchResult]]:
        """The timed results that only size and implementation tell apart, by their name."""
        return grouped(self.timed, lambda r: f"{without_size(r.case)}, {pass_in_full(r)}")

    @cached_property
    def names(self) -> dict[Case, str]:
        """The name of each case, without the dtype and reduction that all share."""
        cases = [result.case for result in self.results]
        axes = ({str(case.dtype) for case in cases}, {str(case.reduction) for case in cases})
        shared = [value for values in axes for value in values if len(values) == 1]
        return {
            case: " ".join(word for word in name.split() if word not in shared)
            for case, name in distinct_names(cases).items()
        }

    @cached_property
    def keys(self) -> dict[Case, str]:
        """The id of each case's section, without the prefix of the run."""
        return {case: f"c{index}" for index, case in enumerate(self.names, 1)}

    @property
    def subjects(self) -> list[str]:
        """The implementations that the run is about: losscli's own, else all but the reference."""
        names = list(dict.fromkeys(result.implementation for result in self.timed))
        own = [name for name in names if is_own(name)]
        return own or [name for name in names if name != REFERENCE] or names

    @property
    def cache_bytes(self) -> int | None:
        """The size of the last cache of the device."""
        facts = self.run.environment
        on_gpu = str(facts.get("device", "cpu")).startswith("cuda")
        size = facts.get("gpu_cache_bytes" if on_gpu else "cpu_cache_bytes")
        return size if isinstance(size, int) and size > 0 else None

    def by_name(self, results: Sequence[BenchResult]) -> dict[str, list[BenchResult]]:
        """Return results by implementation, in the order of the colours."""
        found = grouped(results, lambda result: result.implementation)
        return dict(sorted(found.items(), key=lambda item: self.styles[item[0]]))


def pass_in_full(result: BenchResult) -> str:
    """Return ``forward``, or ``forward+backward, host, warm`` where mode and cache are others."""
    return ", ".join([LONG_PASSES[result.pass_], *mode_and_cache(result.mode, result.cache)])


def pass_of(result: BenchResult) -> str:
    """Return ``fwd``, or ``fwd+bwd host warm`` where mode and cache are not the usual."""
    words = short_pass(result)
    return words if result.cache == "cold" else f"{words} {result.cache}"


def without_size(case: Case) -> str:
    """Return the name of a case without its size."""
    size = format_size(case.size)
    words = case.name.split()
    if size in words:
        words.remove(size)
    return " ".join(words)


def binned(
    places: Iterable[tuple[float, float]], factor: float = 4.0, *, highest: bool = False
) -> list[tuple[float, float]]:
    """Return the medians of places whose sizes lie within a factor, or the highest of them."""
    bins: list[list[tuple[float, float]]] = []
    for x, y in sorted(places):
        if not bins or x >= bins[-1][0][0] * factor:
            bins.append([])
        bins[-1].append((x, y))
    of_bin = max if highest else median
    return [(median(x for x, _ in each), of_bin([y for _, y in each])) for each in bins]


def slug(words: str) -> str:
    """Return words as a part of a plot's name: ``forward-backward``."""
    return re.sub(r"[\W_]+", "-", words.lower()).strip("-")
