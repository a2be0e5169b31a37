"""Records as JSON, validated when read."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from losscli.errors import unknown
from losscli.files.record import Record
from losscli.runs import former_names

T = TypeVar("T")

_PLACE = re.compile(r" - at `\$(?:\[(?P<index>\d+)\])?\.?(?P<field>.*)`$")
"""msgspec's place of an error: a record's index and its field."""
_QUOTED = re.compile(r"'([^']*)'")

_decoder: Callable[[Any], msgspec.json.Decoder[Any]] = cache(msgspec.json.Decoder)
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


def read_json(kind: type[T], text: bytes) -> T:
    """Return the record or records; RecordError for a bad field, UNREADABLE for bad JSON."""
    if former_names.are_in(text):
        return read_value(kind, former_names.updated(msgspec.json.decode(text)))
    with _record_errors(kind):
        record: T = _decoder(kind).decode(text)
        return record


def read_value(kind: type[T], value: Any) -> T:
    """Return the record of a parsed object; RecordError for a bad field."""
    with _record_errors(kind):
        return msgspec.convert(value, kind)


@contextmanager
def _record_errors(kind: Any) -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as error:
        text = str(error)
        place = _PLACE.search(text)
        found = text[: place.start()] if place else text
        path = place["field"] if place else ""
        index = int(place["index"]) if place and place["index"] else None
        if (given := _QUOTED.search(found)) and (candidates := _candidates(kind, path)):
            name = path.rpartition(".")[2]
            known = unknown(name, given[1], candidates).removesuffix(".")
            raise RecordError(f"'{name}': {known}", index) from None
        field = f"'{path}': " if path else ""
        raise RecordError(f"{field}{found[:1].lower()}{found[1:]}", index) from None


def _candidates(kind: Any, path: str) -> tuple[str, ...]:
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    for name in path.split("."):
        if not (isinstance(kind, type) and issubclass(kind, Record)):
            return ()
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        kind = types.get(name)
    return get_args(kind) if get_origin(kind) is Literal else ()
