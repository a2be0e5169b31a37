"""Readers of config values; errors point at the line."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from losscli.cases.axes import CHANGING, GradOutput
from losscli.config.positions import Located, each
from losscli.config.schema import MOST_PROCESSES, LossChoice, off_default
from losscli.config.sizes import parse_size, powers_of_two
from losscli.errors import UsageError, unknown
from losscli.implementations import find_implementation, is_file
from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS, WEIGHTED, Shape, find_loss
from losscli.losses.fields import Parameter
from losscli.losses.rows.spec import LOGITS, VECTORS
from losscli.losses.spec import Spec
from losscli.units import finite, parse_memory

T = TypeVar("T")

LARGEST_SEED = 2**63 - 1


def check_name(kind: str, text: str, candidates: Collection[str]) -> str:
    """Return ``text`` if it is a candidate; UsageError lists them."""
    if text not in candidates:
        raise UsageError(unknown(kind, text, candidates))
    return text


def check_device(text: str) -> str:
    """Return ``text`` if it is a device name; the device need not exist."""
    if not re.fullmatch("auto|cpu|cuda(:[0-9]+)?", text):
        raise UsageError(f"unknown device '{text}'. Choose from: auto, cpu, cuda, cuda:N.")
    return text


def whole_number(what: str, least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers."""

    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,19}", text) or not least <= int(text) <= most:
            end = "2^63 - 1" if most == LARGEST_SEED else most
            message = f"'{text}' is not a {what}. Write a whole number from {least} to {end}."
            raise UsageError(message)
        return int(text)

    return read


check_seed = whole_number("seed", 0, LARGEST_SEED)
check_processes = whole_number("number of processes", 1, MOST_PROCESSES)


def check_grad_output(text: str) -> GradOutput:
    """Parse a grad_output: a finite number or ``changing``."""
    if (number := finite(text)) is None and text != CHANGING:
        raise UsageError(unknown("grad_output", text, (CHANGING, "a finite number such as 0.5")))
    return text if number is None else number


def read_mapping(
    node: Located, what: str, readers: Mapping[str, Callable[[Located], T]], kind: str = "key"
) -> dict[str, T]:
    """Read a mapping's values by key; an unknown key is an error with a suggestion."""
    if not isinstance(node.value, dict):
        node.fail(f"expected {what}, found {node.describe()}.")

    def read(entry: tuple[str, Located]) -> tuple[str, T]:
        name, value = entry
        if name not in readers and value.key is not None:
            value.key.fail(unknown(kind, name, readers))
        return name, readers[name](value)

    return dict(each(node.value.items(), read))


def read_text(node: Located, read: Callable[[str], T]) -> T:
    """Parse a scalar's text; errors point at its position."""
    if isinstance(node.value, dict | list) or node.value is None:
        node.fail(f"expected one value, found {node.describe()}.")
    try:
        return read(node.text)
    except UsageError as error:
        node.fail(str(error))


def text(read: Callable[[str], T]) -> Callable[[Located], T]:
    """Return a reader of scalars from a text parser."""
    return lambda node: read_text(node, read)


def _items(node: Located, kind: str) -> list[Located]:
    if isinstance(node.value, dict) or node.value in (None, []):
        article = "an" if kind[0] in "aeiou" else "a"
        node.fail(f"expected {article} {kind} or a list of them, found {node.describe()}.")
    return node.value if isinstance(node.value, list) else [node]


def _number(node: Located) -> float:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        node.fail(f"expected a finite number, found {node.describe()}.")
    return float(value)


def one_name(
    kind: str, candidates: Collection[str], formerly: Mapping[str, str] | None = None
) -> Callable[[Located], str]:
    """Return a reader of one name, or of a former one."""
    return text(lambda name: check_name(kind, (formerly or {}).get(name, name), candidates))


def several(kind: str, read: Callable[[Located], T]) -> Callable[[Located], tuple[T, ...]]:
    """Return a reader of one value or a list, without duplicates."""
    return lambda node: tuple(dict.fromkeys(each(_items(node, kind), read)))


def read_implementation(node: Located) -> str:
    """Read an implementation; a file's path is relative to the config."""

    def read(name: str) -> str:
        path = str(Path(node.file).parent / name) if is_file(name) else name
        return find_implementation(path).name

    return read_text(node, read)


def read_line(node: Located) -> str:
    """Read one line of text."""
    line = read_text(node, str.strip)
    if not line or "\n" in line:
        node.fail(f"expected a line of text, found {node.describe()}.")
    return line


def read_losses(node: Located) -> tuple[LossChoice, ...]:
    """Read a name, names with parameters, or a list."""
    items = [node] if isinstance(node.value, dict) else _items(node, "loss")
    every = next((i.value for i in reversed(items) if i.value in ("all", "off_default")), "")
    choices: list[LossChoice] = []
    for found in each(items, _choices):
        choices += [choice for choice in found if choice not in choices]
    named = {choice.name for choice in choices}
    others = {name: spec for name, spec in LOSSES.items() if every and name not in named}
    more = _off_default(others) if every == "off_default" else list(map(LossChoice, others))
    return (*choices, *more)


def _choices(item: Located) -> list[LossChoice]:
    """Read an item's losses, without those that ``all`` adds."""
    if isinstance(item.value, dict):
        return each(item.value.values(), _choice)
    if isinstance(item.value, str) and item.value in _GROUPS:
        return _GROUPS[item.value]
    return [LossChoice(read_text(item, check_loss))]


def _off_default(specs: Mapping[str, Spec]) -> list[LossChoice]:
    values = {name: off_default(spec).items() for name, spec in specs.items()}
    return [LossChoice(name, {key: (v,) for key, v in own}) for name, own in values.items()]


_GROUPS: Mapping[str, list[LossChoice]] = {
    "all": [],
    "off_default": [],
    "weighted": _off_default(WEIGHTED),
    "rows": list(map(LossChoice, ROW_FORMS)),
    "rows_off_default": _off_default(ROW_FORMS),
    "rows_of_logits": [LossChoice(n) for n, s in ROW_FORMS.items() if s.holds == LOGITS],
    "rows_of_vectors": [LossChoice(n) for n, s in ROW_FORMS.items() if s.holds == VECTORS],
    "linear": list(map(LossChoice, LINEAR_LOSSES)),
    "linear_off_default": _off_default(LINEAR_LOSSES),
}
"""The losses of a group's name; unnamed ones come last."""


def check_loss(name: str) -> str:
    """Return the name of a known loss."""
    return find_loss(name).name


def _choice(given: Located) -> LossChoice:
    assert given.key
    spec = read_text(given.key, find_loss)
    if given.value is None:
        return LossChoice(spec.name)
    if not spec.parameters and given.value != {}:
        given.fail(f"{spec.name} has no parameters. Write the name alone.")
    readers = {p.name: several("number", partial(_parameter, p)) for p in spec.parameters}
    what = f"the parameters of {spec.name}"
    return LossChoice(spec.name, read_mapping(given, what, readers, "parameter"))


def _parameter(parameter: Parameter, item: Located) -> float:
    number = read_text(item, parse_memory) if parameter.is_bytes else _number(item)
    if complaint := parameter.check(number):
        item.fail(f"{complaint}.")
    return number


def read_sizes(node: Located) -> tuple[Shape, ...]:
    """Read sizes; ``{pow2: [START, STOP, STEP]}`` is several."""

    def read(item: Located) -> Sequence[Shape]:
        return _powers(item) if isinstance(item.value, dict) else read_text(item, parse_size)

    items = [node] if isinstance(node.value, dict) else _items(node, "size")
    return tuple(dict.fromkeys(shape for shapes in each(items, read) for shape in shapes))


def _powers(node: Located) -> tuple[Shape, ...]:
    parts = read_mapping(node, "a size", {"pow2": lambda item: item.value}).get("pow2")
    numbers = [item.value for item in parts] if isinstance(parts, list) else []
    exponents = [number for number in numbers if type(number) is int]  # a boolean is none
    if len(exponents) != len(numbers) or len(numbers) not in (2, 3):
        node.fail("expected {pow2: [START, STOP, STEP]} with two or three whole numbers.")
    try:
        return powers_of_two(*exponents)
    except UsageError as error:
        node.fail(str(error))


def read_size(node: Located) -> Shape:
    """Read exactly one size."""
    if len(shapes := read_text(node, parse_size)) != 1:
        node.fail(f"expected one size, found {len(shapes)} in '{node.text}'.")
    return shapes[0]


def read_scale(node: Located) -> float:
    """Read a number above 0."""
    if (value := _number(node)) <= 0:
        node.fail(f"expected a number above 0, found {value:g}.")
    return value
