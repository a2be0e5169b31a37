"""Shards of a run: distribute its cases over machines or tasks."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from losscli.errors import UsageError
from losscli.runs.grouping import Item, grouped

MOST_PARTS = 10_000


@dataclass(frozen=True)
class Part:
    """One shard of a run; the first has number 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_part(text: str) -> Part:
    """Parse a shard such as ``3/16``; UsageError if the text is not a shard."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text.strip())
    part = Part(*map(int, match.groups())) if match else Part(0, 0)
    if not 1 <= part.number <= part.count <= MOST_PARTS:
        form = f"K/N, such as 3/16, for the third of 16 parts; there are at most {MOST_PARTS}"
        raise UsageError(f"'{text}' is not a part of a run. Write {form}.")
    return part


def deal(
    items: Iterable[Item],
    part: Part | None,
    *,
    case: Callable[[Item], object],
    seconds: Callable[[Item], float],
) -> list[Item]:
    """Return the items of a shard, in order; the same everywhere. A case's items stay together."""
    items = list(items)
    if part is None:
        return items
    cases = grouped(items, case)
    taken = {key: sum(map(seconds, of_case)) for key, of_case in cases.items()}
    loads = [0.0] * part.count
    kept = set()
    for key in sorted(cases, key=lambda key: -taken[key]):
        least = loads.index(min(loads))
        loads[least] += taken[key]
        if least == part.number - 1:
            kept.add(key)
    if cases and not kept:
        said = f"--part {part} has no case, because there are only {len(cases)}."
        raise UsageError(f"{said} Use at most that many parts.")
    return [item for item in items if case(item) in kept]
