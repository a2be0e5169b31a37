"""From the plain values of JSON back to a record: the inverse of the records' ``to_json``."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Read = Callable[[Any], Any]


class RecordError(ValueError):
    """A value is not what its field holds; the message names the field."""


def from_json(kind: Any, value: Any) -> Any:
    """Return a value of a type, a frozen dataclass say, from what it is in JSON.

    A name that ends in ``_`` to be one in Python has none of it in JSON. Keys that are not fields
    are passed over: those of a later version, and figures that follow from others.

    Raises:
        RecordError: a field is missing or of another type.
    """
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Read:
    """Return what reads a type; made once, for there may be a hundred thousand values."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_reader(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (_reader(argument) for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple_reader(arguments[0])
    if origin is Mapping:
        inner = _reader(arguments[1])
        return lambda value: {key: inner(item) for key, item in _of(dict, value).items()}
    if kind in (float, int):
        return _float if kind is float else _int
    if kind is Any:
        return lambda value: value
    return lambda value: _of(kind, value)


def _dataclass_reader(kind: type[Any]) -> Read:
    hints = get_type_hints(kind)
    readers = [
        (field.name, field.name.rstrip("_"), _plain(hints[field.name]), _reader(hints[field.name]))
        for field in fields(kind)
    ]
    defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    factories = [
        (f.name, f.default_factory) for f in fields(kind) if f.default_factory is not MISSING
    ]
    required = {field.name.rstrip("_") for field in fields(kind) if not _has_default(field)}

    def read(value: Any) -> Any:
        if type(value) is kind:  # was read before
            return value
        given = _of(dict, value)
        if not required <= given.keys():
            raise RecordError(f"there is no '{min(required - given.keys())}'")
        found = {}
        for name, key, plain, reader in readers:
            if key not in given:
                continue
            item = given[key]
            if type(item) not in plain:
                try:
                    item = reader(item)
                except RecordError as error:
                    raise RecordError(f"'{key}': {error}") from None
            found[name] = item
        # What the constructor of a frozen dataclass does, in a quarter of its time.
        record = object.__new__(kind)
        if len(found) < len(readers):
            for name, make in factories:
                if name not in found:
                    found[name] = make()
            found = defaults | found
        vars(record).update(found)
        return record

    return read


def _plain(hint: Any) -> frozenset[type]:
    """Return the types of JSON that need no reading, as most values do not; a number may be NaN."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(part for part in parts if part in (str, bool, type(None)))


def _tuple_reader(kind: Any) -> Read:
    """Return what reads a list; one of numbers, samples perhaps, is looked at as a whole."""
    if kind is not float:
        inner = _reader(kind)
        return lambda value: tuple(inner(item) for item in _of(list, value))

    def read(value: Any) -> tuple[float, ...]:
        if not set(map(type, _of(list, value))) <= {float, int}:
            raise RecordError("not all of them are numbers")
        _float(_sum(value))  # which is finite if each of them is
        return tuple(value)

    return read


def _sum(values: list[float]) -> float:
    try:
        return float(sum(values))
    except OverflowError:
        return math.inf


def _float(value: Any) -> float:
    number = value if type(value) is float else float(_int(value))
    if -math.inf < number < math.inf:
        return number
    raise RecordError(f"expected a finite number, found {number}")


def _int(value: Any) -> int:
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    _of(int, value)
    raise RecordError("expected a number of at most 64 bits")


def _of(kind: type[T], value: Any) -> T:
    # A boolean is an int to Python, and to nobody else.
    if type(value) is not kind:
        raise RecordError(f"expected {_NAMES.get(kind, kind.__name__)}, found {value!r:.40}")
    return value


_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a number",
    bool: "true or false",
}


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING
