"""`losscli list`: the available losses, implementations, devices and configs. Needs no torch."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable

import click

from losscli.cli.options import listing_format, one_of
from losscli.config.loader import shipped_configs
from losscli.implementations import IMPLEMENTATIONS
from losscli.losses import LOSSES
from losscli.machine.devices import core_count, cpu_model, find_gpus, torch_without_cuda
from losscli.report.tables import lay_out
from losscli.units import format_bytes


def _losses() -> dict[str, str]:
    """Name each loss with its formula and the defaults of its parameters."""
    return {
        spec.name: "; ".join(
            [spec.formula, *(f"{p.name} = {p.default:g}" for p in spec.parameters)]
        )
        for spec in LOSSES.values()
    }


def _implementations() -> dict[str, str]:
    """Name each implementation with its description."""
    return {i.name: i.description for i in IMPLEMENTATIONS.values()}


def _devices() -> dict[str, str]:
    """Name the CPU and each GPU."""
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


KINDS: dict[str, Callable[[], dict[str, str]]] = {
    "losses": _losses,
    "implementations": _implementations,
    "devices": _devices,
    "configs": _configs,
}


@click.command("list")
@click.argument("kind", type=one_of("kind", KINDS), metavar=f"[{'|'.join(KINDS)}]", required=False)
@listing_format
def command(kind: str | None, format: str) -> None:
    """List losses, implementations, devices or configs; without an argument, all four."""
    listing = {name: KINDS[name]() for name in ([kind] if kind else KINDS)}
    if format == "json":
        click.echo(json.dumps(listing, indent=2))
        return
    for name, entries in listing.items():
        table = lay_out((), list(entries.items()), align=("left", "left"))
        click.echo(table if kind else f"{name}:\n{textwrap.indent(table, '  ')}")
