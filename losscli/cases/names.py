"""The names of cases among others, which tell them apart."""

from collections.abc import Iterable

from losscli.cases.axes import Parameters
from losscli.cases.case import Case
from losscli.units import format_size


def distinct_names(cases: Iterable[Case]) -> dict[Case, str]:
    """Return each case's name, with parameters that vary and fields that tell equal names apart."""
    cases = list(cases)
    swept: dict[tuple[str, str], set[float]] = {}
    for case in cases:
        for parameter, value in case.params.items():
            swept.setdefault((case.loss, parameter), set()).add(value)
    by_name: dict[str, dict[Case, None]] = {}
    for case in cases:
        shown = [name for name in case.params if len(swept[case.loss, name]) > 1]
        by_name.setdefault(case.name_with(shown), {})[case] = None
    names: dict[Case, str] = {}
    for name, alike in by_name.items():
        parting = [f for f in Case.__struct_fields__ if len({getattr(c, f) for c in alike}) > 1]
        for case in alike:
            fields = [f"{field}={_written(getattr(case, field))}" for field in parting]
            names[case] = " ".join([name, *fields])
    return names


def _written(value: object) -> str:
    if isinstance(value, Parameters):
        return ",".join(f"{name}={number!r}" for name, number in value.items())
    return format_size(value) if isinstance(value, tuple) else str(value)
