"""The rows of a comparison: keys, names, and why two runs share none. Needs no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from losscli.cases.axes import COLD, DEVICE, Cache, Mode, PassName
from losscli.cases.case import Case
from losscli.runs.records import OK, BenchResult, Run
from losscli.units import first_of, format_size

_NAMED = 2


@dataclass(frozen=True)
class RowKey:
    """The key of a row, equal in both runs."""

    table: str
    case: Case
    """The case on any device of its kind."""
    pass_: PassName
    mode: Mode
    cache: Cache
    implementation: str

    @property
    def beside(self) -> tuple[object, ...]:
        """The key of the rows that were timed together."""
        return self.table, self.case, self.pass_, self.mode, self.cache

    @property
    def parts(self) -> dict[str, object]:
        """All that distinguishes rows, by user-facing names."""
        case = {_PARTS.get(name, name): getattr(self.case, name) for name in Case.__struct_fields__}
        calls = {"pass": self.pass_, "mode": self.mode, "cache": self.cache}
        return {"table": self.table, **case, **calls, "implementation": self.implementation}


_PARTS = {"shape": "size", "target_shape": "size of the target", "params": "parameters"}
"""User-facing names of a case's fields."""


def key(result: BenchResult, case: Case | None = None) -> RowKey:
    """Return the key of a row; ``case`` is its case on any device, if known."""
    how = result.pass_, result.mode, result.cache
    return RowKey(result.table, case or result.case.anywhere(), *how, result.implementation)


def timed(run: Run) -> dict[RowKey, BenchResult]:
    """Return the results of a run that have a time."""
    found = {}
    for case, results in groupby(run.of(BenchResult), lambda result: result.case):
        anywhere = case.anywhere()
        for result in results:
            if result.seconds and result.status == OK:
                found[key(result, anywhere)] = result
    return found


def median_of(result: BenchResult) -> float:
    """Return the median of a timed row."""
    assert result.seconds
    return result.seconds.median


def label(row: Any) -> str:
    """Return ``mse 1Kx1K float32 mean, custom, forward`` of a result or of a comparison's row."""
    case = row.case if isinstance(row.case, str) else row.case.name
    words = [case, row.implementation, long_name(row.pass_), *mode_and_cache(row.mode, row.cache)]
    return in_table(", ".join(words), row.table)


def in_table(name: str, table: str) -> str:
    """Return a name with that of its table, if it has one."""
    return f"{name} ({table})" if table else name


def long_name(pass_: str) -> str:
    """Return ``forward+backward`` for ``forward_backward``."""
    return pass_.replace("_", "+")


def named(result: BenchResult) -> dict[str, Any]:
    """Return what names a row in records."""
    names = ("pass_", "mode", "cache", "implementation", "table")
    return {"case": result.case.name, **{name: getattr(result, name) for name in names}}


def mode_and_cache(mode: str, cache: str) -> list[str]:
    """Return mode and cache, without unknown and default ones."""
    return [word for word in (mode, cache) if word not in ("", DEVICE, COLD)]


def why_unmatched(first: str, before: Run, second: str, after: Run) -> str:
    """Return one sentence on why two runs share no row."""
    befores, afters = timed(before), timed(after)
    for name, rows in ((first, befores), (second, afters)):
        if not rows:
            return f"Nothing was timed in {name}."
    for part in next(iter(befores)).parts:
        others = [
            {tuple(v for name, v in key.parts.items() if name != part) for key in rows}
            for rows in (befores, afters)
        ]
        if others[0] & others[1]:
            return (
                f"Their rows differ in the {part}: {_values(part, befores)} in {first}, "
                f"{_values(part, afters)} in {second}."
            )
    named = [
        f"{name} begins with {'; '.join(map(label, islice(rows.values(), _NAMED)))}"
        for name, rows in ((first, befores), (second, afters))
    ]
    return ". ".join(named) + "."


def _values(part: str, keys: Iterable[RowKey]) -> str:
    def written(value: Any) -> str:
        if isinstance(value, tuple) and all(isinstance(extent, int) for extent in value):
            return format_size(value)
        return f"'{value}'" if isinstance(value, str) else str(value)

    return first_of(dict.fromkeys(written(key.parts[part]) for key in keys), _NAMED)
