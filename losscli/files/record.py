"""Structs that are written to JSON and read back by their fields."""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, ClassVar

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, rename=lambda name: name.rstrip("_")):
    """A JSON object with a key per field; never in a cycle, so not garbage-collected."""

    derived: ClassVar[Mapping[str, str]] = {}
    """Properties that are written, not read, by the field or property before them."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {key: _plain(getattr(self, name)) for key, name in _keys(type(self))}


def now() -> str:
    """Return the time as records have it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class CommandRecord(Record, frozen=True, kw_only=True):
    """The record of this command, made now."""

    schema_version: int = 1
    kind: str
    command: tuple[str, ...] = msgspec.field(default_factory=lambda: ("losscli", *sys.argv[1:]))
    created: str = msgspec.field(default_factory=now)


@cache
def _keys(kind: type[Record]) -> tuple[tuple[str, str], ...]:
    keys = []
    for key, name in zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True):
        keys.append((key, name))
        while name in kind.derived:
            name = kind.derived[name]
            keys.append((name, name))
    return tuple(keys)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
