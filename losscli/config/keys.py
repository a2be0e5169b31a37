"""The keys of a config: how each is read, and their JSON Schema.

They follow from the fields of ``losscli.config.schema``: a ``Literal`` is one of its names, a tuple
one value or a list; an annotation is the description. `_VALUES` has what types do not tell.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from losscli.cases.axes import CHANGING
from losscli.config import fields
from losscli.config.check_names import CATCHES, FORMER_CHECKS
from losscli.config.positions import Located, each
from losscli.config.schema import MOST_PROCESSES, CaseTolerance, Config, Exclude, Inputs, Timing
from losscli.runs.columns import COLUMNS, FORMER_COLUMNS
from losscli.runs.former_names import updated
from losscli.units import parse_fraction, parse_seconds

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """A key's reader and its JSON Schema."""

    read: Callable[[Located], Any]
    schema: Schema


PLURALS = {"loss": "losses", "pass": "passes"}
"""Keys of lists whose name is not an item's plus an s."""
_NOT_KEYS = ("filters", "whole_targets", "ranks", "tables")
"""Fields of Config that commands set, and the tables."""
_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": ["string", "number"]}
_ABOVE_0: Schema = {"type": "number", "exclusiveMinimum": 0}
_SIZE: Schema = {"type": ["string", "integer"]}
_EXPONENTS: Schema = {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "integer"}}


def _object(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": False, **more, "properties": properties}


def _keys_of(record: type, known: Mapping[str, Key]) -> dict[str, Key]:
    hints = get_type_hints(record, include_extras=True)
    names = {field.rstrip("_"): hint for field, hint in hints.items() if field not in _NOT_KEYS}
    return {name: _key(name, hint, known) for name, hint in names.items()}


def _key(name: str, hint: Any, known: Mapping[str, Key]) -> Key:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if get_origin(hint) is Annotated:
        kind, description = kinds
        key = _key(name, kind, known)
        return replace(key, schema={"description": description, **key.schema})
    if get_origin(hint) in (Union, UnionType) and len(kinds) == 1:
        return _key(name, kinds[0], known)
    if get_origin(hint) is Literal:
        names = [kind for kind in kinds if kind]
        return Key(fields.one_name(name, names), {"enum": names})
    if name in known:
        return known[name]
    assert get_origin(hint) is tuple
    singular = next((one for one in PLURALS if PLURALS[one] == name), name.removesuffix("s"))
    item = _key(singular, kinds[0], known)
    return Key(fields.several(singular, item.read), _some(item.schema))


def _some(item: Schema) -> Schema:
    return {"anyOf": [item, {"type": "array", "minItems": 1, "items": item}]}


def _parsed(parse: Callable[[str], Any], **schema: Any) -> Key:
    return Key(fields.text(parse), schema)


_VALUES: Mapping[str, Key] = {
    # A copy of a shipped config may have a former title.
    "title": Key(lambda node: updated(fields.read_line(node)), _TEXT),
    "reason": Key(fields.read_line, _TEXT),
    **dict.fromkeys(("min_time", "max_time", "budget"), _parsed(parse_seconds, **_TIME)),
    "confidence": _parsed(parse_fraction, **_TIME),
    "device": _parsed(fields.check_device, type="string", pattern="^(auto|cpu|cuda(:[0-9]+)?)$"),
    "loss": _parsed(fields.check_loss, **_TEXT),
    "losses": Key(fields.read_losses, _some({"type": ["string", "object"]})),
    "size": Key(fields.read_size, _SIZE),
    "sizes": Key(
        fields.read_sizes,
        _some({"anyOf": [_SIZE, _object({"pow2": _EXPONENTS}, required=["pow2"])]}),
    ),
    "grad_output": _parsed(
        fields.check_grad_output, anyOf=[{"type": "number"}, {"const": CHANGING}]
    ),
    "implementation": Key(fields.read_implementation, _TEXT),
    "scale": Key(fields.read_scale, _ABOVE_0),
    "seed": _parsed(fields.check_seed, type="integer", minimum=0, maximum=fields.LARGEST_SEED),
    "processes": _parsed(fields.check_processes, type="integer", minimum=1, maximum=MOST_PROCESSES),
    "check": Key(fields.one_name("check", CATCHES, FORMER_CHECKS), _TEXT),
    "column": Key(
        fields.one_name("column", COLUMNS, FORMER_COLUMNS), {"enum": [*COLUMNS, *FORMER_COLUMNS]}
    ),
}
"""The keys of single values, and lists of values that may be written in several ways."""


def _record(kind: type, what: str, **more: Any) -> Key:
    keys = _keys_of(kind, _VALUES)

    def read(node: Located) -> Any:
        values = fields.read_mapping(node, what, {name: key.read for name, key in keys.items()})
        return kind(**{f"{n}_" if iskeyword(n) else n: value for n, value in values.items()})

    return Key(read, _object({name: key.schema for name, key in keys.items()}, **more))


_INPUTS = _record(Inputs, "a mapping such as {seed: 1}")
_TIMING = _record(Timing, "a mapping such as {min_time: 0.2s}")
_RULE = _record(Exclude, "a rule such as {dtype: float64}", minProperties=1)


def _timing(node: Located) -> Timing:
    timing: Timing = _TIMING.read(node)
    # A bound given alone in a file moves the other; the nearest file's keys come last.
    written = cast("dict[str, Located]", node.value)
    bounds = [key for key in written if key in ("min_time", "max_time")]
    if bounds and len({written[key].file for key in bounds}) == len(bounds):
        if bounds[-1] == "max_time":
            timing = replace(timing, min_time=min(timing.min_time, timing.max_time))
        else:
            timing = replace(timing, max_time=max(timing.min_time, timing.max_time))
    if not 0 < timing.max_time >= timing.min_time:
        least = f"min_time ({timing.min_time:g} s)"
        node.fail(f"max_time ({timing.max_time:g} s) must be above 0 and no less than {least}.")
    return timing


def _exclude(node: Located) -> tuple[Exclude, ...]:
    if not isinstance(node.value, list):
        node.fail(f"expected a list of rules such as {{dtype: float64}}, found {node.describe()}.")

    def read(item: Located) -> Exclude:
        rule: Exclude = _RULE.read(item)
        if not rule.conditions:
            item.fail("an empty rule would leave every case out. Name what to leave out.")
        return rule

    return tuple(each(node.value, read))


def _tolerances(node: Located) -> tuple[CaseTolerance, ...]:
    if not isinstance(node.value, dict):
        node.fail(f"expected {{CASE NAME: {{ulp: N}}}}, found {node.describe()}.")

    def read(item: Located) -> float:
        values = fields.read_mapping(item, "{ulp: N}", {"ulp": fields.read_scale})
        return values["ulp"] if values else item.fail("expected {ulp: N}, found an empty mapping.")

    found = fields.read_mapping(node, "tolerances", dict.fromkeys(node.value, read))
    return tuple(CaseTolerance(case, ulp) for case, ulp in found.items())


_TOLERANCE = _object({"ulp": _ABOVE_0}, required=["ulp"])
FIELDS: Mapping[str, Key] = _keys_of(
    Config,
    {
        **_VALUES,
        "inputs": _INPUTS,
        "timing": Key(_timing, _TIMING.schema),
        "exclude": Key(_exclude, {"type": "array", "items": _RULE.schema}),
        "tolerances": Key(_tolerances, {"type": "object", "additionalProperties": _TOLERANCE}),
    },
)

EXTENDS = "extends"
TABLES = "tables"
TABLE_KEYS = tuple(key for key in FIELDS if key not in ("device", "columns"))
"""A table's keys: all but device and columns, which a run has once."""


def json_schema() -> Schema:
    """Return a config's JSON Schema."""
    extends = {
        "description": "Name of the config to extend: a file next to this one, or a shipped "
        "config. A key of this file replaces the same key of that config.",
        "type": "string",
    }
    tables = {
        "description": "Tables that run one after the other. Each is this config with the table's "
        "keys over its own.",
        "type": "array",
        "minItems": 1,
        "items": _object(
            {key: {"$ref": f"#/properties/{key}"} for key in TABLE_KEYS}, required=["title"]
        ),
    }
    properties = {name: key.schema for name, key in FIELDS.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "losscli config",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {EXTENDS: extends, TABLES: tables, **properties},
    }
