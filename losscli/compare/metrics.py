"""The metrics of a row besides its time that can fail a comparison, each with a noise rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from losscli.errors import UsageError, unknown
from losscli.units import finite, format_joules, format_ulp, parse_fraction, parse_memory

if TYPE_CHECKING:
    from losscli.compare.noise import Change
    from losscli.runs.records import BenchResult

TIME, MEMORY, ENERGY = "time", "memory", "energy"


@dataclass(frozen=True)
class Metric:
    """A metric of a result: where it is, its limit, and when it has grown beyond that."""

    of: Callable[[BenchResult], float | None]
    """Returns None if not measured."""
    unit: str
    limit: Callable[[str], float]
    """Reads the limit of ``--fail-on``."""
    text: Callable[[float], str]
    """Writes the metric so that any growth shows."""
    allowed: Callable[[float], str]
    noisy: bool = False
    """Whether it is as noisy as the time; its limit is then a fraction."""

    def grown(self, before: float, after: float, ratio: Change, limit: float) -> bool:
        """Tell whether it grew beyond the limit and its noise; ``ratio`` is that of the times."""
        if self.noisy:
            return after > before * (1 + limit) and after * ratio.low > before * ratio.value
        return after > before + limit


def _ulp(text: str) -> float:
    value = finite(text.strip().removesuffix("ulp").rstrip())
    if value is None or value < 0:
        raise UsageError(f"'{text}' is not a number of units in the last place. Write 0 or 1ulp.")
    return value


def _bytes(count: float) -> str:
    return f"{count:,.0f} B"


METRICS: Mapping[str, Metric] = {
    MEMORY: Metric(lambda r: r.peak_extra_bytes, "bytes", parse_memory, _bytes, _bytes),
    ENERGY: Metric(
        *(lambda r: r.joules, "joules", parse_fraction),
        *(format_joules, lambda limit: f"{100 * limit:g} %"),
        noisy=True,
    ),
    "error": Metric(
        *(lambda r: r.error.ulp, "ulp", _ulp),
        *(lambda ulp: f"{format_ulp(ulp)} ulp", lambda limit: f"{limit:g} ulp"),
    ),
}
"""Metrics by their name in ``--fail-on``; the time has its own statistics."""


def read_limit(text: str) -> tuple[tuple[str, float]]:
    """Read ``5%``, a limit of the time, or ``memory=0``; UsageError for other text."""
    name, equals, limit = (part.strip() for part in text.partition("="))
    if not equals:
        name, limit = TIME, text
    if name not in (TIME, *METRICS):
        raise UsageError(unknown("metric", name, (TIME, *METRICS)))
    read = parse_fraction if name == TIME else METRICS[name].limit
    try:
        return ((name, read(limit)),)
    except UsageError as error:
        raise UsageError(f"--fail-on {name}: {error}" if equals else str(error)) from None


def limits_of(given: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return each metric's limit; UsageError for two limits of one."""
    names = [name for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--fail-on gives two limits of {name}. Leave one of them.")
    return dict(given)
