"""Records as JSON, validated when read."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from losscli.errors import unknown
from losscli.files.record import Record
from losscli.runs import former_names

R = TypeVar("R", bound=Record)

_PLACE = re.compile(r" - at `\$(?:\[(?P<index>\d+)\])?\.?(?P<field>.*)`$")
"""msgspec's place of an error: a record's index and its field."""
_QUOTED = re.compile(r"'([^']*)'")

_decoder = cache(msgspec.json.Decoder)
"""Creating a decoder is slower than using it."""

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def json_line(record: Mapping[str, Any]) -> str:
    """Return one line of JSON with null for non-finite numbers, and any file names."""
    return json.dumps(finite(record), allow_nan=False)


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


class RecordError(ValueError):
    """A value does not fit its field, which the message names."""

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text)
        self.index = index


def read_array(kind: type[R], text: bytes) -> list[R]:
    """Return a JSON array's records; RecordError for a bad field, UNREADABLE for bad JSON."""
    with _record_errors(kind):
        records: list[R] = _decode(list[kind], text)  # type: ignore[valid-type]
        return records


def read_object(kind: type[R], text: bytes) -> R:
    """Return the record in a JSON object; see :func:`read_array`."""
    with _record_errors(kind):
        record: R = _decode(kind, text)
        return record


def read_value(kind: type[R], value: Any) -> R:
    """Return the record of a parsed object; see :func:`read_array`."""
    with _record_errors(kind):
        return msgspec.convert(value, kind)


def _decode(kind: Any, text: bytes) -> Any:
    if former_names.are_in(text):
        return msgspec.convert(former_names.updated(msgspec.json.decode(text)), kind)
    return _decoder(kind).decode(text)


@contextmanager
def _record_errors(kind: type[Record]) -> Iterator[None]:
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
    for name in path.split("."):
        if not (isinstance(kind, type) and issubclass(kind, Record)):
            return ()
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        kind = types.get(name)
    return get_args(kind) if get_origin(kind) is Literal else ()
