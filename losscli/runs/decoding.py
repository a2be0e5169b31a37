"""Decodes JSON into records and checks them: the inverse of their ``to_json``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from losscli.errors import unknown

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$(?:\[(?P<index>\d+)\])?\.?(?P<field>.*)`$")
"""Where msgspec says that something is wrong: the index of a record, and its field."""
_QUOTED = re.compile(r"'([^']*)'")

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised where a text is not JSON, or nested too deeply."""


class RecordError(ValueError):
    """A value is not what its field holds; the message names the field."""

    def __init__(self, text: str, index: int | None = None) -> None:
        """``index`` is that of the record among those that were read."""
        super().__init__(text)
        self.index = index


def read_array(kind: type[T], text: bytes) -> list[T]:
    """Return the records in a JSON array.

    They are frozen dataclasses. A name that ends in ``_`` to be one in Python has none of it in
    JSON. Keys that are not fields are passed over: those of a later version, and figures that
    follow from others.

    Raises:
        RecordError: a field is missing or of another type.
        UNREADABLE: the text is not JSON.
    """
    struct: Any = _struct(kind)  # type: ignore[arg-type]
    with told(kind):
        structs = msgspec.json.decode(text, type=list[struct])
    return [_record(kind, struct) for struct in structs]


def read_object(kind: type[T], text: bytes) -> T:
    """Return the record in a JSON object; see :func:`read_array`."""
    with told(kind):
        return _record(kind, _decoder(kind).decode(text))  # type: ignore[arg-type]


def read_value(kind: type[T], value: Any) -> T:
    """Return the record of an object that is parsed already; see :func:`read_array`."""
    with told(kind):
        return _record(kind, msgspec.convert(value, _struct(kind)))  # type: ignore[arg-type]


@contextmanager
def told(kind: Any = None) -> Iterator[None]:
    """Turn what msgspec says of a value, of a record of a kind, into a RecordError."""
    try:
        yield
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        found = text[: place.start()] if place else text
        path = place["field"] if place else ""
        index = int(place["index"]) if place and place["index"] else None
        given = _QUOTED.search(found)
        if given and (candidates := _candidates(kind, path)):
            name = path.rpartition(".")[2]
            known = unknown(name, given[1], candidates).removesuffix(".")
            raise RecordError(f"'{name}': {known}", index) from None
        field = f"'{path}': " if path else ""
        raise RecordError(f"{field}{found[:1].lower()}{found[1:]}", index) from None


def _candidates(kind: Any, path: str) -> tuple[str, ...]:
    """Return the texts that a field may hold; none where it may hold others."""
    for name in path.split("."):
        if not is_dataclass(kind):
            return ()
        hints = get_type_hints(kind)
        kind = hints.get(name) or hints.get(f"{name}_")
    return get_args(kind) if get_origin(kind) is Literal else ()


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_struct(kind))


@cache
def _struct(kind: Any) -> type[msgspec.Struct]:
    """Return what reads a record: msgspec reads a dataclass as well, but under Python's names."""
    hints = get_type_hints(kind)
    given: list[Any] = []
    for field in fields(kind):
        default: Any = msgspec.NODEFAULT if field.default is MISSING else field.default
        if field.default_factory is not MISSING:
            default = msgspec.field(default_factory=field.default_factory)
        given.append((field.name, hints[field.name], default))
    return msgspec.defstruct(
        kind.__name__, given, rename=lambda name: name.rstrip("_"), frozen=True, gc=False
    )


def _record(kind: type[T], struct: msgspec.Struct) -> T:
    """Return the record, in a quarter of the time of a frozen dataclass's constructor."""
    record = object.__new__(kind)
    vars(record).update(msgspec.structs.asdict(struct))
    if hasattr(record, "__post_init__"):
        record.__post_init__()
    return record
