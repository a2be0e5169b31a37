"""`losscli list`: the available losses, implementations, devices and configs. Needs no torch."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from losscli.cli.completion import OneOf
from losscli.cli.options import examples, listing_format
from losscli.config.check_names import CATCHES
from losscli.config.loader import shipped_configs
from losscli.console.streams import emit
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import ELEMENT, LINEAR_LOSSES, LOSSES, ROW_FORMS, Spec
from losscli.losses.elementwise.weighting import is_weighted
from losscli.machine.devices import core_count, cpu_model, find_gpus, torch_without_cuda
from losscli.render.layout import GAP, INDENT, WIDTH, lay_out
from losscli.runs.columns import COLUMNS
from losscli.units import format_bytes

Entries = Mapping[str, Any]
"""What JSON holds of each thing of a kind, by its name."""
BELOW_ITS_KIND = "  "
"""What stands before a line of a kind that is listed among others."""
ROOM = WIDTH - len(BELOW_ITS_KIND)
"""Characters of a line."""


def _losses() -> Entries:
    rows = [spec for name, spec in ROW_FORMS.items() if not is_weighted(name)]
    every = (*LOSSES.values(), *rows, *LINEAR_LOSSES.values())
    return {spec.name: _described(spec) for spec in every}


def _described(spec: Spec) -> dict[str, Any]:
    """Return what JSON holds of a loss."""
    return {
        "formula": spec.formula,
        "unit": spec.unit,
        "operands": [
            {
                "name": operand.name,
                "role": operand.description,
                "domain": operand.domain.name,
                "gradient": operand.differentiable,
            }
            for operand in spec.operands
        ],
        "parameters": [
            {
                "name": parameter.name,
                "role": parameter.description,
                "domain": parameter.domain,
                "default": parameter.default,
            }
            for parameter in spec.parameters
        ],
    }


def _devices() -> dict[str, str]:
    devices = {"cpu": f"{cpu_model() or 'CPU'}, {core_count()} cores"}
    gpus = find_gpus()
    unusable = torch_without_cuda() if gpus else None
    note = f"; out of reach, torch {unusable} is built without CUDA" if unusable else ""
    for gpu in gpus:
        devices[gpu.name] = f"{gpu.model}, {format_bytes(gpu.memory_bytes)}{note}"
    return devices


def _configs() -> dict[str, str]:
    """Name each shipped config with the comment that it starts with."""
    return {
        path.name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for path in shipped_configs().values()
    }


def _table(entries: Entries) -> str:
    return lay_out((), list(entries.items()), align=("left", "left"))


def _table_of_losses(losses: Entries) -> str:
    """Lay out each loss: its formula, and below it a line for each operand and parameter."""
    blocks = []
    for name, loss in losses.items():
        kinds = ["operand, gradient" if o["gradient"] else "operand" for o in loss["operands"]]
        kinds += [f"parameter, default {p['default']:g}" for p in loss["parameters"]]
        described = [*loss["operands"], *loss["parameters"]]
        rows = [
            (each["name"], kind, each["domain"], each["role"])
            for each, kind in zip(described, kinds, strict=True)
        ]
        unit = "" if loss["unit"] == ELEMENT else f", by {loss['unit']}"
        title = f"{name}{unit}: {loss['formula']}"
        title = textwrap.fill(title, ROOM, subsequent_indent=2 * INDENT)
        blocks.append(f"{title}\n{textwrap.indent(_wrapped(rows), INDENT)}")
    return "\n".join(blocks)


def _wrapped(rows: Sequence[tuple[str, ...]]) -> str:
    """Lay out rows whose last cells are broken so that they fit a terminal."""
    *columns, _ = zip(*rows, strict=True)
    room = ROOM - len(INDENT) - sum(max(map(len, column)) + GAP for column in columns)
    lines: list[tuple[str, ...]] = []
    for *cells, last in rows:
        first, *more = textwrap.wrap(last, room) or [""]
        lines += [(*cells, first), *((*[""] * len(cells), line) for line in more)]
    return lay_out((), lines, align=["left"] * len(lines[0]))


KINDS: dict[str, Callable[[], Entries]] = {
    "losses": _losses,
    "implementations": lambda: {i.name: i.description for i in IMPLEMENTATIONS.values()},
    "checks": lambda: CATCHES,
    "devices": _devices,
    "configs": _configs,
    "columns": lambda: {
        name: column.meaning if column.header == name else column.told
        for name, column in COLUMNS.items()
    },
}


_LAYOUTS: dict[str, Callable[[Entries], str]] = {
    "losses": _table_of_losses,
    "checks": lambda checks: _wrapped(list(checks.items())),
    "columns": lambda columns: _wrapped(list(columns.items())),
}
"""How the kinds are laid out whose lines are too long for a terminal."""


@click.command("list")
@click.argument("kind", type=OneOf("kind", KINDS), metavar=f"[{'|'.join(KINDS)}]", required=False)
@listing_format()
@examples(
    "losscli list",
    "losscli list losses",
    "losscli list checks --json",
)
def command(kind: str | None, format: str) -> None:
    """List losses, implementations, checks, devices, configs, columns; without argument, all."""
    listing = {name: KINDS[name]() for name in ([kind] if kind else KINDS)}
    if format == "json":
        emit(json.dumps(listing, indent=2))
        return
    for name, entries in listing.items():
        table = _LAYOUTS.get(name, _table)(entries)
        emit(table if kind else f"{name}:\n{textwrap.indent(table, BELOW_ITS_KIND)}")
