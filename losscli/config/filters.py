"""The grammar of ``--filter``: ``loss=mse,dtype=bfloat16``, ``impl=custom:*``, ``beta!=0.5|2``."""

import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase

from losscli.cases.axes import DISTRIBUTIONS, DTYPES, LAYOUTS, PASSES
from losscli.config.fields import check_grad_output, check_name
from losscli.config.schema import Condition, Filter
from losscli.config.sizes import parse_size
from losscli.errors import UsageError, unknown
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import EVERY_LOSS, REDUCTIONS

Read = Callable[[str], tuple[object, ...]]


def parse_filter(text: str) -> Filter:
    """Parse conditions that must all hold; ``|`` separates the alternatives of one."""
    return tuple(_condition(part.strip(), text) for part in text.split(","))


def _condition(part: str, text: str) -> Condition:
    if (match := re.fullmatch(r"([a-z_]+)\s*(!?=)\s*(.+)", part)) is None:
        advice = "Write AXIS=VALUE, with commas between several, such as loss=mse,dtype=bfloat16."
        raise UsageError(f"'{text}' is not a filter. {advice}")
    axis, sign, values = match.groups()
    axis = {"impl": "implementation"}.get(axis, axis)
    if axis in _CHOSEN:
        raise UsageError(f"--filter has no axis '{axis}'; {_CHOSEN[axis]} chooses it.")
    read = _AXES[check_name("axis", axis, _AXES)]
    found = tuple(item for value in values.split("|") for item in read(value.strip()))
    return Condition(axis, found, negated=sign == "!=")


def _named(kind: str, candidates: Collection[str]) -> Read:
    def read(text: str) -> tuple[str, ...]:
        if not (found := tuple(name for name in candidates if fnmatchcase(name, text))):
            raise UsageError(unknown(kind, text, candidates))
        return found

    return read


def _parameter(text: str) -> tuple[float]:
    try:
        return (float(text),)
    except ValueError:
        raise UsageError(f"'{text}' is not a number.") from None


_AXES: Mapping[str, Read] = {
    "loss": _named("loss", EVERY_LOSS),
    "size": parse_size,
    "dtype": _named("dtype", DTYPES),
    "reduction": _named("reduction", REDUCTIONS),
    "pass": _named("pass", PASSES),
    "implementation": _named("implementation", IMPLEMENTATIONS),
    "distribution": _named("distribution", DISTRIBUTIONS),
    "layout": _named("layout", LAYOUTS),
    "grad_output": lambda text: (check_grad_output(text),),
    "table": lambda text: (text,),
    **{p.name: _parameter for spec in EVERY_LOSS.values() for p in spec.parameters},
}

_CHOSEN: Mapping[str, str] = {
    "mode": "--mode of `losscli bench`",
    "cache": "--cache of `losscli bench`",
    "device": "--device",
    "seed": "--seed",
}
"""Other names, with the option to use instead."""
