"""Merges the shards of a run."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from losscli.errors import UsageError
from losscli.machine.differences import MIXED, SOFTWARE, differences, parts_ways
from losscli.runs.parts import Part, parse_part
from losscli.runs.records import BenchResult, Result, Run, VerifyResult

ONE_RUN = "Only the parts of one run can be joined"
_OF_PART = "part|output|format|save|resume"
"""Options of `losscli bench` and `verify` that belong to one part; each has a value."""
_SEPARATE = re.compile(rf"--({_OF_PART})|-o")
_ATTACHED = re.compile(rf"--({_OF_PART})=|-o.|LOSSCLI_(BENCH|VERIFY)_({_OF_PART.upper()}|FORCE)=")
"""These options with an attached value, and their variables."""


def merge(runs: Mapping[str, Run], *, mixed: bool = False) -> Run:
    """Return the run of these shards, by name; UsageError if they are not those of one run."""
    for name, run in runs.items():
        _check_part(name, run)
    runs = dict(sorted(runs.items(), key=lambda item: min(_numbers(item[1]))))
    (base, first), *others = runs.items()
    for name, run in others:
        _check_alike(base, first, name, run)
        if not mixed and (unlike := _unlike(first, run)):
            raise UsageError(
                f"{base} and {name} are from different machines, {unlike}. --mixed joins "
                "them all the same: each time then names its machine, and the run is compared with "
                "no other."
            )
    for (one, first_run), (other, run) in combinations(runs.items(), 2):
        if twice := {*first_run.parts} & {*run.parts}:
            said = f"{one} and {other} both have part {min(twice)}."
            raise UsageError(f"{said} Leave one of them out.")
    _check_apart(runs)
    every = list(runs.values())
    count = parse_part(first.parts[0]).count
    numbers = sorted(number for run in every for number in _numbers(run))
    are_mixed = any(MIXED in run.environment or _unlike(first, run) for run in every)
    environment = _mixed_environment(every) if are_mixed else first.environment
    results = [result for run in every for result in _marked(run, mark=are_mixed)]
    return replace(
        first,
        command=_of_whole(first.command),
        created=min(run.created for run in every),
        environment=environment,
        parts=() if len(numbers) == count else tuple(str(Part(n, count)) for n in numbers),
        headline=None,
        result_count=len(results),
        results=_in_order(results),
    )


def missing_parts(run: Run) -> list[str]:
    """Return the shards that a merged run lacks."""
    count = parse_part(run.parts[0]).count if run.parts else 0
    every = (str(Part(number, count)) for number in range(1, count + 1))
    return [part for part in every if part not in run.parts]


def _check_part(name: str, run: Run) -> None:
    if not run.parts:
        said = f"{name} is a whole run, measured without --part. {ONE_RUN}"
        raise UsageError(f"{said}; `losscli compare` compares whole runs.")
    part = f"part {', '.join(run.parts)}"
    if run.unfinished:
        resume = f"Finish it with --resume {name}, or run" if run.kind == "bench" else "Run"
        lacks = f"it does not have all results of {part}"
        said = f"{name} was interrupted, or stopped at a failure: {lacks}."
        raise UsageError(f"{said} {resume} the part again.")
    if (count := len(run.results)) != run.result_count:
        said = f"it has {count} results of {part}, and says that it has {run.result_count}"
        advice = "Copy the file again, or run the part again."
        raise UsageError(f"{name} is damaged: {said}. {advice}")
    if twice := next((part for part in run.parts if run.parts.count(part) > 1), ""):
        raise UsageError(f"{name} says twice that it has part {twice}. Merge the parts again.")


def _numbers(run: Run) -> list[int]:
    return [parse_part(part).number for part in run.parts]


def _check_alike(base: str, first: Run, name: str, run: Run) -> None:
    if first.kind != run.kind:
        said = f"{base} is from `losscli {first.kind}`, {name} from `losscli {run.kind}`."
        raise UsageError(f"{said} {ONE_RUN}.")
    one, other = (parse_part(each.parts[0]).count for each in (first, run))
    if one != other:
        raise UsageError(f"{base} is one of {one} parts, {name} one of {other}. {ONE_RUN}.")
    for unlike in differences(first.environment, run.environment):
        if unlike.fact in SOFTWARE and unlike.fact != "gpu_driver":
            raise UsageError(f"{base} and {name} have different software, {unlike}. {ONE_RUN}.")
    if first.plan != run.plan:
        commands = f"`{' '.join(first.command)}` and `{' '.join(run.command)}`"
        said = f"{base} and {name} have different configs: they are from {commands}."
        raise UsageError(f"{said} {ONE_RUN}.")


def _check_apart(runs: Mapping[str, Run]) -> None:
    seen: dict[object, str] = {}
    for name, run in runs.items():
        for result in run.results:
            assert isinstance(result, BenchResult | VerifyResult)
            key: tuple[object, ...] = (getattr(result, "table", ""), result.case)
            if isinstance(result, VerifyResult):  # failures of several cases show on the same
                key = (result.case, result.shrunk_from, result.check, result.implementation)
            if (first := seen.setdefault(key, name)) != name:
                raise UsageError(
                    f"{first} and {name} both have results of {result.case.name}, which is in one "
                    "part alone. One of them was edited: copy it again, or run its part again."
                )


def _unlike(first: Run, run: Run) -> str:
    found = differences(first.environment, run.environment, host=True)
    return str(next(filter(parts_ways, found), ""))


def _mixed_environment(runs: Sequence[Run]) -> dict[str, Any]:
    found = {}
    for key in dict.fromkeys(key for run in runs for key in run.environment):
        values = dict.fromkeys(str(run.environment.get(key)) for run in runs)
        found[key] = runs[0].environment.get(key) if len(values) == 1 else " or ".join(values)
    return {**found, MIXED: True}


def _marked(run: Run, *, mark: bool) -> Sequence[Result]:
    if not mark or MIXED in run.environment:
        return run.results
    machine = str(run.environment.get("gpu") or run.environment.get("cpu") or "unknown")
    return [
        replace(each, conditions={**each.conditions, "machine": machine})
        if isinstance(each, BenchResult)
        else each
        for each in run.results
    ]


def _in_order(results: Sequence[Result]) -> tuple[Result, ...]:
    titles = list(dict.fromkeys(getattr(result, "table", "") for result in results))

    def place(result: Result) -> tuple[object, ...]:
        assert isinstance(result, BenchResult | VerifyResult)
        case = result.case
        return titles.index(getattr(result, "table", "")), case.loss, case.elements, case.name

    return tuple(sorted(results, key=place))


def _of_whole(command: Sequence[str]) -> tuple[str, ...]:
    words, left = [], iter(command)
    for word in left:
        if _SEPARATE.fullmatch(word):
            next(left, "")  # its value
        elif word != "--force" and not _ATTACHED.match(word):
            words.append(word)
    return tuple(words)
