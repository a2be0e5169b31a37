"""Writes a config in full, with the origin of each value."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from losscli.config.keys import FIELDS, TABLES
from losscli.config.loader import MERGED, Keys
from losscli.config.positions import Located
from losscli.config.schema import Config, Exclude, Inputs, LossChoice, Timing
from losscli.units import format_size

Shown = dict[str, Any]
"""A value by key, as in YAML, with its origin; or nested keys, or a list of them."""


def shown(config: Config, written: Keys, tables: Sequence[Keys], given: Mapping[str, str]) -> Shown:
    """Return every key with its value and origin; ``given`` names origins of overridden keys."""
    keys = _keys(config, written, given)
    if config.tables:
        base = _values(config)
        keys[TABLES] = [
            {
                key: item
                for key, item in _keys(table, own, given).items()
                if key == "title" or _values(table)[key] != base.get(key)
            }
            for table, own in zip(config.tables, tables, strict=True)
        ]
    return keys


def _shown(value: object, given: str | None, node: Located | None) -> Shown:
    place = node and (node.key or node)
    origin = f"{place.file}:{place.line}" if place else "default"
    return {"value": value, "origin": given or origin}


def _keys(config: Config, located: Keys, given: Mapping[str, str]) -> Shown:
    found: Shown = {}
    for key, value in _values(config).items():
        node = located.get(key)
        if key not in MERGED:
            found[key] = _shown(value, given.get(key), node)
            continue
        inner = node.value if node is not None and isinstance(node.value, dict) else {}
        found[key] = {n: _shown(part, given.get(n), inner.get(n)) for n, part in value.items()}
    return found


def _values(config: Config) -> dict[str, Any]:
    """Return a config's values without tables, as in a file."""
    values = {key: _plain(getattr(config, key)) for key in FIELDS}
    values["sizes"] = [format_size(size) for size in config.sizes]
    values["tolerances"] = {each.case: {"ulp": each.ulp} for each in config.tolerances}
    return {key: value for key, value in values.items() if value not in ("", [], {})}


def _plain(value: object) -> object:
    if isinstance(value, LossChoice | Exclude):
        return value.written
    if isinstance(value, Inputs | Timing):
        return {key: _plain(part) for key, part in vars(value).items() if part is not None}
    return list(map(_plain, value)) if isinstance(value, tuple) else value


def yaml_lines(keys: Shown, indent: str = "") -> Iterator[str]:
    """Yield the lines of readable YAML with a comment on each origin."""
    for key, item in keys.items():
        if isinstance(item, list):
            yield f"{indent}{key}:"
            for table in item:
                first, *others = yaml_lines(table, f"{indent}    ")
                yield f"{indent}  - {first.lstrip()}"
                yield from others
        elif "origin" in item:
            flow = yaml.safe_dump(
                item["value"], default_flow_style=True, width=10**9, sort_keys=False
            )
            value = flow.removesuffix("\n").removesuffix("\n...")
            yield _wrapped(f"{indent}{key}: {value}", item["origin"], indent)
        else:
            yield f"{indent}{key}:"
            yield from yaml_lines(item, f"{indent}  ")


def _wrapped(line: str, origin: str, indent: str) -> str:
    """Break a line after its commas, but not its comment: YAML reads a break as one space."""
    breakable = re.sub(",\0(?!\0)", ", ", line.replace(" ", "\0"))
    comment = f" # {origin}".replace(" ", "\0")
    broken = textwrap.wrap(
        *(breakable + comment, 100), subsequent_indent=f"{indent}    ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(broken).replace("\0", " ")
