"""The keys of a config: their readers and JSON Schema."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from losscli.cases.axes import CACHES, CHANGING, DISTRIBUTIONS, DTYPES, LAYOUTS, MODES, PASSES
from losscli.config import fields
from losscli.config.check_names import CATCHES, FORMERLY
from losscli.config.positions import Located, each
from losscli.config.schema import MOST_PROCESSES, Exclude, Inputs, Timing, Tolerance
from losscli.losses import REDUCTIONS
from losscli.ranks.placements import PLACEMENTS
from losscli.runs.columns import COLUMNS
from losscli.units import parse_fraction, parse_seconds

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """A key's reader and its JSON Schema."""

    read: Callable[[Located], object]
    schema: Schema
    description: str = ""

    def json_schema(self) -> Schema:
        """Return the schema with the description for editors."""
        return ({"description": self.description} if self.description else {}) | dict(self.schema)


_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_ABOVE_0: Schema = {"type": "number", "exclusiveMinimum": 0}
_TIME: Schema = {"type": ["string", "number"]}
_GRAD_OUTPUT: Schema = {"anyOf": [_NUMBER, {"const": CHANGING}]}
_SIZE: Schema = {"type": ["string", "integer"]}
_POWERS: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["pow2"],
    "properties": {
        "pow2": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"type": "integer"}}
    },
}


def _some(item: Schema) -> Schema:
    return {"anyOf": [item, {"type": "array", "minItems": 1, "items": item}]}


def _one_of(kind: str, candidates: Collection[str]) -> Key:
    return Key(fields.one_name(kind, candidates), {"enum": list(candidates)})


def _some_of(kind: str, candidates: Collection[str]) -> Key:
    return Key(fields.names(kind, candidates), _some({"enum": list(candidates)}))


def _time(which: str) -> Key:
    return Key(fields.text(parse_seconds), _TIME, f"{which}: 0.2s, 50ms, 1m or seconds.")


def _mapping(keys: Mapping[str, Key], **more: Any) -> Schema:
    properties = {name: key.json_schema() for name, key in keys.items()}
    return {"type": "object", "additionalProperties": False, **more, "properties": properties}


def _record(node: Located, what: str, keys: Mapping[str, Key]) -> dict[str, object]:
    def read(name: str, item: Located) -> tuple[str, object]:
        fields.check_key(name, item, keys, "key")
        return name, keys[name].read(item)

    entries = fields.check_mapping(node, what)
    return dict(each(entries.items(), lambda entry: read(*entry)))


_INPUTS = {
    "distribution": _some_of("distribution", DISTRIBUTIONS),
    "scale": Key(fields.read_scale, _ABOVE_0, "Factor of every prediction."),
    "seed": Key(
        fields.text(fields.check_seed),
        {"type": "integer", "minimum": 0, "maximum": fields.LARGEST_SEED},
    ),
}
_TIMING = {
    "min_time": _time("Shortest sampling time of a pass of a case"),
    "max_time": _time("Longest sampling time of a pass of a case, after three rounds"),
    "confidence": Key(
        fields.text(parse_fraction),
        _TIME,
        "Relative half-width of the median's confidence interval at which sampling stops: 1% or "
        "0.01.",
    ),
    "cache": _one_of("cache", CACHES),
    "mode": _some_of("mode", MODES),
    "processes": Key(
        fields.text(fields.check_processes),
        {"type": "integer", "minimum": 1, "maximum": MOST_PROCESSES},
        "Number of fresh processes that sample each case and share its time; 1 samples in the "
        "process of the command.",
    ),
    "budget": _time("Longest time of the whole run"),
}
_EXCLUDE = {
    "loss": Key(fields.text(fields.check_loss), _TEXT),
    "size": Key(fields.read_size, _SIZE),
    "dtype": _one_of("dtype", DTYPES),
    "reduction": _one_of("reduction", REDUCTIONS),
    "device": _one_of("device", ("cpu", "cuda")),
    "implementation": Key(fields.read_implementation, _TEXT),
    "pass": _one_of("pass", PASSES),
    "layout": _one_of("layout", LAYOUTS),
    "grad_output": Key(fields.read_grad_output, _GRAD_OUTPUT),
    "reason": Key(fields.read_line, _TEXT, "Reason for the rule, shown in the report."),
}
_TOLERANCE = {"ulp": Key(fields.read_scale, _ABOVE_0)}


def _inputs(node: Located) -> Inputs:
    return Inputs(**_record(node, "a mapping such as {seed: 1}", _INPUTS))  # type: ignore[arg-type]


def _timing(node: Located) -> Timing:
    values = _record(node, "a mapping such as {min_time: 0.2s}", _TIMING)
    timing = Timing(**values)  # type: ignore[arg-type]
    # A bound given alone in a file moves the other; the nearest file's keys come last.
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
    return tuple(each(node.value, _rule))


def _rule(item: Located) -> Exclude:
    values = _record(item, "a rule such as {dtype: float64}", _EXCLUDE)
    if not values.keys() - {"reason"}:
        item.fail("an empty rule would leave every case out. Name what to leave out.")
    if "pass" in values:
        values["pass_"] = values.pop("pass")
    return Exclude(**values)  # type: ignore[arg-type]


def _tolerances(node: Located) -> tuple[Tolerance, ...]:
    if not isinstance(node.value, dict):
        node.fail(f"expected {{CASE NAME: {{ulp: N}}}}, found {node.describe()}.")
    return tuple(each(node.value.items(), lambda entry: _tolerance(*entry)))


def _tolerance(case: str, item: Located) -> Tolerance:
    values = _record(item, "{ulp: N}", _TOLERANCE)
    if not values:
        item.fail("expected {ulp: N}, found an empty mapping.")
    return Tolerance(case, cast("float", values["ulp"]))


FIELDS: Mapping[str, Key] = {
    "title": Key(fields.read_line, _TEXT, "Title above the table of results."),
    "device": Key(
        fields.text(fields.check_device),
        {"type": "string", "pattern": "^(auto|cpu|cuda(:[0-9]+)?)$"},
        "Device to run on: auto, cpu, cuda or cuda:N.",
    ),
    "losses": Key(
        fields.read_losses,
        _some({"type": ["string", "object"]}),
        "Losses: all, names, or maps with parameters such as {smooth_l1: {beta: [0.5, 1.0]}}; "
        "off_default adds the losses that are not named, with parameters off their defaults; "
        "weighted adds each loss with a weight (weighted_mse, ...), with such parameters; rows "
        "adds each loss over rows, in all of its forms; rows_off_default adds them with such "
        "parameters; rows_of_logits and rows_of_vectors add those whose rows hold these; linear "
        "adds the fused linear losses, linear_off_default with such parameters.",
    ),
    "sizes": Key(
        fields.read_sizes,
        _some({"anyOf": [_SIZE, _POWERS]}),
        "Sizes: 1024x1024, 32K (32768), 1K..32K*2, pow2[10:30:5] or {pow2: [10, 30, 5]}; of hidden "
        "states tokens x width x classes.",
    ),
    "dtypes": _some_of("dtype", DTYPES),
    "reductions": _some_of("reduction", REDUCTIONS),
    "passes": _some_of("pass", PASSES),
    "grad_outputs": Key(
        fields.several(f"a number or {CHANGING},", fields.read_grad_output),
        _some(_GRAD_OUTPUT),
        "Values of grad_output for forward_backward: numbers, or changing for another number in "
        "each call.",
    ),
    "layouts": _some_of("layout", LAYOUTS),
    "implementations": Key(
        fields.several("an implementation", fields.read_implementation),
        _some(_TEXT),
        "Implementations, as `losscli list implementations` names them.",
    ),
    "inputs": Key(_inputs, _mapping(_INPUTS)),
    "exclude": Key(
        _exclude,
        {"type": "array", "items": _mapping(_EXCLUDE, minProperties=1)},
        "Rules that leave rows out. A row is left out if it matches every key of a rule, unless "
        "the command line names each value of the rule.",
    ),
    "timing": Key(_timing, _mapping(_TIMING)),
    "placement": replace(
        _one_of("placement", PLACEMENTS),
        description="How operands are split over ranks, which --ranks or torchrun starts: "
        "vocabulary gives each rank some of the classes of every row.",
    ),
    "tolerances": Key(
        _tolerances,
        {"type": "object", "additionalProperties": _mapping(_TOLERANCE, required=["ulp"])},
        "Tolerances: {CASE NAME: {ulp: N}} loosens that of one case; --dry-run lists the names.",
    ),
    "checks": Key(
        fields.several(
            "a check",
            fields.text(lambda n: fields.check_name("check", FORMERLY.get(n, n), CATCHES)),
        ),
        _some(_TEXT),
        "Checks that `losscli verify` runs, as `losscli list checks` names them; all without it.",
    ),
    "columns": replace(
        _some_of("column", COLUMNS),
        description="Columns of the tables of `losscli bench`, as `losscli list columns` names "
        "them.",
    ),
}

EXTENDS = "extends"
TABLES = "tables"
TABLE_KEYS = tuple(key for key in FIELDS if key not in ("device", "columns"))
"""A table's keys: all but device and columns, which a run has once."""


def json_schema() -> Schema:
    """Return a config's JSON Schema."""
    properties = {name: key.json_schema() for name, key in FIELDS.items()}
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
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["title"],
            "properties": {key: {"$ref": f"#/properties/{key}"} for key in TABLE_KEYS},
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "losscli config",
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {EXTENDS: extends, TABLES: tables, **properties},
    }
