"""Read launches and operators with PyTorch's profiler, which needs no permission."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from losscli.profile.record import Launch

NAME = "torch.profiler"
_MICROSECONDS = 1e-6


def read(text: str) -> tuple[tuple[Launch, ...], float | None]:
    """Return a trace's launches (or operators, longest first) and the GPU's idle time."""
    events = [each for each in json.loads(text)["traceEvents"] if each.get("ph") == "X"]
    on_gpu = [each for each in events if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not (kernels := sorted(on_gpu, key=lambda each: float(each["ts"]))):
        return tuple(_operators(events)), None
    ends = accumulate((float(each["ts"]) + float(each["dur"]) for each in kernels[:-1]), max)
    gaps = (max(float(each["ts"]) - end, 0.0) for each, end in zip(kernels[1:], ends, strict=True))
    return tuple(map(_launch, kernels)), sum(gaps) * _MICROSECONDS


def _launch(event: Mapping[str, Any]) -> Launch:
    known = event.get("args", {})
    percent = known.get("est. achieved occupancy %")
    return Launch(
        name=event["name"],
        seconds=float(event["dur"]) * _MICROSECONDS,
        blocks=prod(known.get("grid", [0])),
        threads=prod(known.get("block", [0])),
        registers=known.get("registers per thread"),
        possible_occupancy=None if percent is None else float(percent) / 100,
    )


def _operators(events: Sequence[Mapping[str, Any]]) -> Iterator[Launch]:
    """Yield the operators with their time excluding operators they call."""
    seconds: defaultdict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    stacks: dict[Any, list[tuple[str, float]]] = {}  # of each thread, its open operators' ends
    operators = [each for each in events if each.get("cat") == "cpu_op"]
    for each in sorted(operators, key=lambda e: (float(e["ts"]), -float(e["dur"]))):
        start, length, name = float(each["ts"]), float(each["dur"]), each["name"]
        stack = stacks.setdefault(each.get("tid"), [])
        while stack and stack[-1][1] <= start:
            stack.pop()
        if stack:
            seconds[stack[-1][0]] -= length
        stack.append((name, start + length))
        seconds[name] += length
        calls[name] += 1
    for name in sorted(seconds, key=lambda each: -seconds[each]):
        yield Launch(name, max(seconds[name], 0.0) * _MICROSECONDS, calls[name])
