"""Readers of the keys of a config file, with errors that point at the line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar, cast

from losscli.axes import (
    CACHES,
    CHANGING,
    DISTRIBUTIONS,
    DTYPES,
    LAYOUTS,
    MODES,
    PASSES,
    GradOutput,
)
from losscli.config.positions import Located
from losscli.config.schema import (
    ALL_ROWS,
    ALL_WEIGHTED,
    MOST_PROCESSES,
    OFF_DEFAULT,
    Exclude,
    Inputs,
    LossChoice,
    Timing,
    Tolerance,
    off_default,
)
from losscli.config.sizes import parse_size, powers_of_two
from losscli.errors import UsageError, unknown
from losscli.implementations import IMPLEMENTATIONS, check_implementation, is_file
from losscli.losses import (
    EVERY_LOSS,
    LOSSES,
    REDUCTIONS,
    ROW_FORMS,
    WEIGHTED,
    Shape,
    Spec,
    find_loss,
)
from losscli.units import parse_fraction, parse_seconds

T = TypeVar("T")
Name = TypeVar("Name", bound=str)

LARGEST_SEED = 2**63 - 1


def check_name(kind: str, text: str, candidates: Collection[Name]) -> Name:
    """Return ``text`` if it is one of the candidates; UsageError lists them."""
    for candidate in candidates:
        if candidate == text:
            return candidate
    raise UsageError(unknown(kind, text, candidates))


def check_device(text: str) -> str:
    """Return ``text`` if it is the name of a device, whether or not the device exists."""
    if not re.fullmatch("auto|cpu|cuda(:[0-9]+)?", text):
        raise UsageError(f"unknown device '{text}'. Choose from: auto, cpu, cuda, cuda:N.")
    return text


def check_seed(text: str) -> int:
    """Return a seed from its text."""
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > LARGEST_SEED:
        raise UsageError(f"'{text}' is not a seed. Write a whole number from 0 to 2^63 - 1.")
    return int(text)


def check_processes(text: str) -> int:
    """Return a number of processes from its text."""
    if not re.fullmatch("[0-9]{1,3}", text) or not 1 <= int(text) <= MOST_PROCESSES:
        raise UsageError(
            f"'{text}' is not a number of processes. Write a whole number from 1 to "
            f"{MOST_PROCESSES}."
        )
    return int(text)


def check_grad_output(text: str) -> GradOutput:
    """Return an incoming gradient from its text: a finite number or ``changing``."""
    if text == CHANGING:
        return text
    try:
        value = float(text)
    except ValueError:
        close = get_close_matches(text, [CHANGING], 1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"unknown incoming gradient '{text}'.{hint} {_GRAD_OUTPUTS}") from None
    if not math.isfinite(value):
        raise UsageError(f"the incoming gradient '{text}' is not finite. {_GRAD_OUTPUTS}")
    return value


_GRAD_OUTPUTS = f"Write a number such as 0.5, or {CHANGING}."


def check_mapping(
    node: Located, what: str, keys: Collection[str], kind: str = "key"
) -> dict[str, Located]:
    """Return a mapping whose keys are all known."""
    if not isinstance(node.value, dict):
        node.fail(f"expected {what}, found {node.describe()}.")
    for name, value in node.value.items():
        if name not in keys and value.key is not None:
            value.key.fail(unknown(kind, name, keys))
    return node.value


def _at(node: Located, read: Callable[[str], T]) -> T:
    """Read a scalar from its text; errors point at its position."""
    if isinstance(node.value, dict | list) or node.value is None:
        node.fail(f"expected one value, found {node.describe()}.")
    try:
        return read(node.text)
    except UsageError as error:
        node.fail(str(error))


def _items(node: Located, what: str) -> list[Located]:
    """Return the items of a list, or one value as a list of one."""
    if isinstance(node.value, dict) or node.value in (None, []):
        node.fail(f"expected {what} or a list of them, found {node.describe()}.")
    return node.value if isinstance(node.value, list) else [node]


def _number(node: Located) -> float:
    """Return a finite number; a boolean is refused."""
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        node.fail(f"expected a finite number, found {node.describe()}.")
    return float(value)


def _name(kind: str, candidates: Collection[str]) -> Callable[[Located], str]:
    """Read one name."""
    return lambda node: _at(node, lambda text: check_name(kind, text, candidates))


def _names(kind: str, candidates: Collection[str]) -> Callable[[Located], tuple[str, ...]]:
    """Read one name or a list of names; a name given twice counts once."""
    read = _name(kind, candidates)
    what = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return lambda node: tuple(dict.fromkeys(read(item) for item in _items(node, what)))


def _implementation(node: Located) -> str:
    """Read the name of an implementation; that of a file counts from the config's directory."""

    def read(text: str) -> str:
        if not is_file(text):
            return check_name("implementation", text, IMPLEMENTATIONS)
        return check_implementation(str(Path(node.file).parent / text))

    return _at(node, read)


def _implementations(node: Located) -> tuple[str, ...]:
    """Read one implementation or a list; one given twice counts once."""
    return tuple(dict.fromkeys(map(_implementation, _items(node, "an implementation"))))


def _line(node: Located) -> str:
    text = _at(node, str.strip)
    if not text or "\n" in text:
        node.fail(f"expected a line of text, found {node.describe()}.")
    return text


def _device(node: Located) -> str:
    return _at(node, check_device)


def _losses(node: Located) -> tuple[LossChoice, ...]:
    """Read a name, names with parameters, or a list of them.

    ``all`` adds those not named, ``off_default`` adds them with parameters that are no defaults,
    ``weighted`` adds each with a weight, and with such parameters. ``rows`` adds every loss over
    rows, in each of its forms.
    """
    choices: list[LossChoice] = []
    every = ""
    for item in [node] if isinstance(node.value, dict) else _items(node, "a loss"):
        if isinstance(item.value, dict):
            known = LOSSES | {n: s for n, s in EVERY_LOSS.items() if n in item.value}
            entries = check_mapping(item, "a loss", known, "loss")
            found = [LossChoice(n, _parameters(entries[n], find_loss(n))) for n in entries]
        elif item.value in ("all", OFF_DEFAULT):
            every, found = item.value, []
        elif item.value == ALL_WEIGHTED:
            found = list(map(_off_default, WEIGHTED.values()))
        elif item.value == ALL_ROWS:
            found = list(map(LossChoice, ROW_FORMS))
        else:
            found = [LossChoice(_loss_name(item))]
        choices += [choice for choice in found if choice not in choices]
    named = {choice.name for choice in choices}
    others = [spec for spec in LOSSES.values() if every and spec.name not in named]
    if every == OFF_DEFAULT:
        return (*choices, *map(_off_default, others))
    return (*choices, *(LossChoice(spec.name) for spec in others))


def _off_default(spec: Spec) -> LossChoice:
    return LossChoice(spec.name, {name: (value,) for name, value in off_default(spec).items()})


def check_loss(name: str) -> str:
    """Return the name of a loss, with a weight or without; UsageError lists the names."""
    return find_loss(name).name


def _loss_name(node: Located) -> str:
    return _at(node, check_loss)


def _parameters(node: Located, spec: Spec) -> Mapping[str, tuple[float, ...]]:
    """Read the parameters of a loss: a number or a list of numbers each."""
    if node.value is None:
        return {}
    if not spec.parameters and node.value != {}:
        node.fail(f"{spec.name} has no parameters. Write the name alone.")
    known = {parameter.name: parameter for parameter in spec.parameters}
    values: dict[str, tuple[float, ...]] = {}
    what = f"the parameters of {spec.name}"
    for name, given in check_mapping(node, what, known, "parameter").items():
        numbers = []
        for item in _items(given, "a number"):
            number = _number(item)
            if complaint := known[name].check(number):
                item.fail(f"{complaint}.")
            numbers.append(number)
        values[name] = tuple(dict.fromkeys(numbers))
    return values


def _sizes(node: Located) -> tuple[Shape, ...]:
    """Read sizes; ``{pow2: [START, STOP, STEP]}`` stands for several."""
    shapes: list[Shape] = []
    for item in [node] if isinstance(node.value, dict) else _items(node, "a size"):
        shapes += _powers(item) if isinstance(item.value, dict) else _at(item, parse_size)
    return tuple(dict.fromkeys(shapes))


def _powers(node: Located) -> tuple[Shape, ...]:
    """Read ``{pow2: [START, STOP]}`` or ``{pow2: [START, STOP, STEP]}``."""
    entries = check_mapping(node, "a size", ("pow2",))
    parts = entries["pow2"].value if entries else None
    numbers = [item.value for item in parts] if isinstance(parts, list) else []
    exponents = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    if len(exponents) != len(numbers) or len(numbers) not in (2, 3):
        node.fail("expected {pow2: [START, STOP, STEP]} with two or three whole numbers.")
    try:
        return powers_of_two(*exponents)
    except UsageError as error:
        node.fail(str(error))


def _size(node: Located) -> Shape:
    """Read exactly one size."""
    shapes = _at(node, parse_size)
    if len(shapes) != 1:
        node.fail(f"expected one size, found {len(shapes)} in '{node.text}'.")
    return shapes[0]


def _grad_output(node: Located) -> GradOutput:
    """Read one incoming gradient; a boolean is no number."""
    if isinstance(node.value, bool):
        node.fail(f"expected a number or {CHANGING}, found {node.describe()}.")
    return _at(node, check_grad_output)


def _grad_outputs(node: Located) -> tuple[GradOutput, ...]:
    """Read one incoming gradient or a list of them."""
    items = _items(node, f"a number or {CHANGING},")
    return tuple(dict.fromkeys(map(_grad_output, items)))


def _seed(node: Located) -> int:
    return _at(node, check_seed)


def _scale(node: Located) -> float:
    value = _number(node)
    if value <= 0:
        node.fail(f"expected a number above 0, found {value:g}.")
    return value


def _duration(node: Located) -> float:
    return _at(node, parse_seconds)


def _record(
    node: Located, what: str, readers: Mapping[str, Callable[[Located], object]]
) -> dict[str, object]:
    """Read a mapping of known keys, each with its own reader."""
    return {key: readers[key](item) for key, item in check_mapping(node, what, readers).items()}


_INPUTS: dict[str, Callable[[Located], object]] = {
    "distribution": _names("distribution", DISTRIBUTIONS),
    "scale": _scale,
    "seed": _seed,
}
_TIMING: dict[str, Callable[[Located], object]] = {
    "min_time": _duration,
    "max_time": _duration,
    "confidence": lambda node: _at(node, parse_fraction),
    "cache": _name("cache", CACHES),
    "mode": _names("mode", MODES),
    "processes": lambda node: _at(node, check_processes),
}
_EXCLUDE: dict[str, Callable[[Located], object]] = {
    "loss": _loss_name,
    "size": _size,
    "dtype": _name("dtype", DTYPES),
    "reduction": _name("reduction", REDUCTIONS),
    "device": _name("device", ("cpu", "cuda")),
    "implementation": _implementation,
    "pass": _name("pass", PASSES),
    "layout": _name("layout", LAYOUTS),
    "grad_output": _grad_output,
    "reason": _line,
}


def _inputs(node: Located) -> Inputs:
    values = _record(node, "a mapping such as {seed: 1}", _INPUTS)
    if "distribution" in values:
        values["distributions"] = values.pop("distribution")
    return Inputs(**values)  # type: ignore[arg-type]


def _timing(node: Located) -> Timing:
    values = _record(node, "a mapping such as {min_time: 0.2s}", _TIMING)
    timing = Timing(**values)  # type: ignore[arg-type]
    # A bound that its file gives alone moves the other; the nearest file's keys come last.
    written = cast("dict[str, Located]", node.value)
    bounds = [key for key in written if key in ("min_time", "max_time")]
    if bounds and len({written[key].file for key in bounds}) == len(bounds):
        if bounds[-1] == "max_time":
            timing = replace(timing, min_time=min(timing.min_time, timing.max_time))
        else:
            timing = replace(timing, max_time=max(timing.min_time, timing.max_time))
    if not 0 < timing.max_time >= timing.min_time:
        node.fail(
            f"max_time ({timing.max_time:g} s) must be above 0 and no less than "
            f"min_time ({timing.min_time:g} s)."
        )
    return timing


def _exclude(node: Located) -> tuple[Exclude, ...]:
    if not isinstance(node.value, list):
        node.fail(f"expected a list of rules such as {{dtype: float64}}, found {node.describe()}.")
    rules = []
    for item in node.value:
        values = _record(item, "a rule such as {dtype: float64}", _EXCLUDE)
        if not values.keys() - {"reason"}:
            item.fail("an empty rule would leave every case out. Name what to leave out.")
        if "pass" in values:
            values["pass_"] = values.pop("pass")
        rules.append(Exclude(**values))  # type: ignore[arg-type]
    return tuple(rules)


def _tolerances(node: Located) -> tuple[Tolerance, ...]:
    if not isinstance(node.value, dict):
        node.fail(f"expected {{CASE NAME: {{ulp: N}}}}, found {node.describe()}.")
    tolerances = []
    for case, item in node.value.items():
        values = check_mapping(item, "{ulp: N}", ("ulp",))
        if not values:
            item.fail("expected {ulp: N}, found an empty mapping.")
        tolerances.append(Tolerance(case, _scale(values["ulp"])))
    return tuple(tolerances)


FIELDS: Mapping[str, Callable[[Located], object]] = {
    "title": _line,
    "device": _device,
    "losses": _losses,
    "sizes": _sizes,
    "dtypes": _names("dtype", DTYPES),
    "reductions": _names("reduction", REDUCTIONS),
    "passes": _names("pass", PASSES),
    "grad_outputs": _grad_outputs,
    "layouts": _names("layout", LAYOUTS),
    "implementations": _implementations,
    "inputs": _inputs,
    "exclude": _exclude,
    "timing": _timing,
    "tolerances": _tolerances,
}
"""The reader of each key, which returns the field of that name of a Config."""
