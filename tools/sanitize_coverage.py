"""Which kernels the calls of `python -m tools.sanitize` reach, and what its runs have covered.

A kernel is an instance of a template: a walk for a dtype, with or without gradients, for a kind of
rows. PyTorch's profiler names those that a call launches. The libraries of row-wise losses use the
same kernel names, so a kernel's key includes its loss.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

NAMESPACE = "losscli"
_WALK = re.compile(r"(\w+)<|(\w+)\(")
_LEAST_ELEMENTS = 2**16
"""What a call costs beside its elements, as elements: its launches, and the start of the tool."""


def kernels_of(loss: str, run: Callable[[], None]) -> list[str]:
    """Make a call and return the kernels of losscli that it launches, each with the loss."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    launched = [each for each in profiled.events() if each.device_type.name == "CUDA"]
    names = {event.name for event in launched if NAMESPACE in event.name}
    return sorted(f"{loss}: {name}" for name in names)


def cost(call: Any) -> int:
    """Return how much a tool watches in a call: elements times passes."""
    facts = vars(call)
    length = facts.get("length") or facts.get("classes") or facts.get("size") or 0
    rows = facts.get("rows") or facts.get("row") or 1
    passes = 1 + len(facts.get("incoming", ("",)))
    return _LEAST_ELEMENTS + length * rows * passes


def fewest(reached: Sequence[Iterable[str]], costs: Sequence[int]) -> list[int]:
    """Return the numbers of the cheapest calls that together reach each kernel.

    ``reached``: the kernels of each call. All calls where no kernel is known.
    """
    if not any(map(set, reached)):
        return list(range(len(reached)))
    chosen: list[int] = []
    seen: set[str] = set()
    for number in sorted(range(len(reached)), key=lambda each: (costs[each], each)):
        if {*reached[number]} - seen:
            chosen.append(number)
            seen |= {*reached[number]}
    # A cheap call whose kernels later ones reach as well is not needed.
    times = Counter(name for number in chosen for name in {*reached[number]})
    for number in list(chosen):
        if all(times[name] > 1 for name in {*reached[number]}):
            chosen.remove(number)
            times.subtract({*reached[number]})
    return sorted(chosen)


def share(numbers: Sequence[int], part: int, parts: int) -> list[int]:
    """Return the numbers of part 1, 2, ... of so many; the parts are disjoint."""
    return list(numbers[part - 1 :: parts])


@dataclass
class Covered:
    """What one tool has done in one or more runs."""

    tool: str
    calls: int = 0
    """The calls that were made."""
    planned: int = 0
    """The calls that this run was to make."""
    seconds: float = 0.0
    clean: bool = True
    shares: list[str] = field(default_factory=list)
    """``K/N`` of each run."""
    kernels: list[str] = field(default_factory=list)
    """The kernels that the calls launched, each after its loss."""
    missing: list[str] = field(default_factory=list)
    """The kernels that calls of other shares launch, or that were not made in time."""
    dtypes: dict[str, int] = field(default_factory=dict)
    """The number of calls by dtype."""

    def joined(self, other: Covered) -> Covered:
        kernels = {*self.kernels, *other.kernels}
        return Covered(
            self.tool,
            self.calls + other.calls,
            self.planned + other.planned,
            self.seconds + other.seconds,
            self.clean and other.clean,
            [*self.shares, *other.shares],
            sorted(kernels),
            sorted({*self.missing, *other.missing} - kernels),
            dict(Counter(self.dtypes) + Counter(other.dtypes)),
        )

    def told(self) -> list[str]:
        of = f"{self.calls} of {self.planned} calls"
        state = "clean" if self.clean else "FAILED"
        lines = [f"{self.tool}: {state}, {of}, shares {', '.join(self.shares)}"]
        every = [*self.kernels, *self.missing]
        if every:
            lines.append(f"  kernels: {len(self.kernels)} of {len(every)}")
            for name, key in (("losses", _loss), ("walks", _walk)):
                lines.append(f"  {name}: {_parts(self.kernels, every, key)}")
        counts = ", ".join(f"{dtype} {count}" for dtype, count in sorted(self.dtypes.items()))
        return [*lines, f"  calls by dtype: {counts}"]


def _loss(kernel: str) -> str:
    return kernel.partition(": ")[0]


def _walk(kernel: str) -> str:
    """Return a kernel's name without namespaces and template arguments."""
    found = _WALK.search(kernel.partition(": ")[2].replace("(anonymous namespace)", ""))
    return (found[1] or found[2]) if found else kernel


def _parts(some: Sequence[str], every: Sequence[str], key: Callable[[str], str]) -> str:
    counts, of = Counter(map(key, some)), Counter(map(key, every))
    return ", ".join(f"{name} {counts[name]}/{number}" for name, number in sorted(of.items()))


def write(path: Path, covered: Covered) -> None:
    """Add a line to a record."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(asdict(covered))}\n")


def read(paths: Iterable[Path]) -> dict[str, Covered]:
    """Return what the runs of several records have done, by tool."""
    found: dict[str, Covered] = {}
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            one = Covered(**json.loads(line))
            found[one.tool] = found[one.tool].joined(one) if one.tool in found else one
    return found


def of_calls(
    tool: str,
    made: Sequence[int],
    planned: Sequence[int],
    calls: Sequence[Any],
    reached: Sequence[Sequence[str]],
    every: Sequence[int],
    facts: Mapping[str, Any],
) -> Covered:
    """Return what a run has done: its calls out of its share's and all shares'."""
    kernels = {name for number in made for name in reached[number]}
    others = {name for number in every for name in reached[number]}
    dtypes = Counter(calls[number].dtype for number in made)
    return Covered(
        tool,
        len(made),
        len(planned),
        kernels=sorted(kernels),
        missing=sorted(others - kernels),
        dtypes=dict(dtypes),
        **facts,
    )
