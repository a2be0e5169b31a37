"""`losscli list`: losses, implementations, devices and configs. Needs no torch."""

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
from losscli.losses import ELEMENT, LINEAR_LOSSES, LOSSES, ROW_FORMS, Operand, Parameter, Spec
from losscli.losses.elementwise.weighting import is_weighted
from losscli.machine.devices import core_count, cpu_model, find_gpus, torch_without_cuda
from losscli.render.text import INDENT, WIDTH, text
from losscli.runs.columns import COLUMNS
from losscli.units import format_bytes
from losscli.views.document import Table

Entries = Mapping[str, Any]
BELOW_ITS_KIND = "  "
"""The indent of a kind's lines when several kinds are listed."""
ROOM = WIDTH - len(BELOW_ITS_KIND)
SYMBOLS = (
    "elementwise: x is the first operand, y the target (of policy: old_log_probs), A the "
    "advantages, a = alpha * y + (1 - alpha) * (1 - y), m the probability of the wrong class",
    "by row: x is a row of logits or log-probabilities, or a vector; y is the class, the target's "
    "logits or the other vector; w are the weights of the classes, 1 without; C is the number of "
    "classes, T the temperature, b beta, t the target 1 or -1; p and q are the softmax of "
    "prediction and target, in cross_entropy p the target's probabilities; a, b and c of "
    "triplet_margin are anchor, positive and negative",
    "by hidden state: h is a hidden state, W and b are weight and bias of the linear layer",
)
"""What the letters in the formulas mean, as in docs/training-code.md."""


def _losses() -> Entries:
    rows = [spec for name, spec in ROW_FORMS.items() if not is_weighted(name)]
    every = (*LOSSES.values(), *rows, *LINEAR_LOSSES.values())
    return {spec.name: _described(spec) for spec in every}


def _described(spec: Spec) -> dict[str, Any]:
    def entry(each: Operand | Parameter, domain: str, **more: object) -> dict[str, Any]:
        return {"name": each.name, "role": each.description, "domain": domain, **more}

    return {
        "formula": spec.formula,
        "unit": spec.unit,
        "operands": [entry(o, o.domain.name, gradient=o.differentiable) for o in spec.operands],
        "parameters": [entry(p, p.domain, default=p.default) for p in spec.parameters],
    }


def _devices() -> dict[str, str]:
    cpu = {"cpu": f"{cpu_model() or 'CPU'}, {core_count()} cores"}
    gpus = find_gpus()
    unusable = torch_without_cuda() if gpus else None
    note = f"; out of reach, torch {unusable} is built without CUDA" if unusable else ""
    return cpu | {g.name: f"{g.model}, {format_bytes(g.memory_bytes)}{note}" for g in gpus}


def _table_of_losses(losses: Entries) -> str:
    blocks = []
    for name, loss in losses.items():
        kinds = ["operand, gradient" if o["gradient"] else "operand" for o in loss["operands"]]
        kinds += [f"parameter, default {p['default']:g}" for p in loss["parameters"]]
        described = zip([*loss["operands"], *loss["parameters"]], kinds, strict=True)
        rows = [(each["name"], kind, each["domain"], each["role"]) for each, kind in described]
        unit = "" if loss["unit"] == ELEMENT else f", by {loss['unit']}"
        title = f"{name}{unit}: {loss['formula']}"
        title = textwrap.fill(title, ROOM, subsequent_indent=2 * INDENT)
        table = _laid_out(rows, ROOM - len(INDENT))
        blocks.append(f"{title}\n{textwrap.indent(table, INDENT)}")
    return "\n".join([*blocks, "", *(textwrap.fill(each, ROOM) for each in SYMBOLS)])


def _laid_out(rows: Sequence[Sequence[str]], room: int, headers: Sequence[str] = ()) -> str:
    return text((Table(headers, rows, align=["left"] * len(rows[0]), wraps=True),), room)


KINDS: dict[str, Callable[[], Entries]] = {
    "losses": _losses,
    "implementations": lambda: {i.name: i.description for i in IMPLEMENTATIONS.values()},
    "checks": lambda: CATCHES,
    "devices": _devices,
    "configs": lambda: {
        path.name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
        for path in shipped_configs().values()
    },
    "columns": lambda: {
        name: column.meaning if column.header == name else column.told
        for name, column in COLUMNS.items()
    },
}


@click.command("list")
@click.argument("kind", type=OneOf("kind", KINDS), metavar=f"[{'|'.join(KINDS)}]", required=False)
@listing_format()
@examples("losscli list", "losscli list losses", "losscli list checks --json")
def command(kind: str | None, format: str) -> None:
    """List losses, implementations, checks, devices, configs, columns; by default all."""
    listing = {name: KINDS[name]() for name in ([kind] if kind else KINDS)}
    if format == "json":
        emit(json.dumps(listing, indent=2))
        return
    for name, entries in listing.items():
        headers = ("check", "finds") if name == "checks" else ()
        rows = [*entries.items()]
        table = _table_of_losses(entries) if name == "losses" else _laid_out(rows, ROOM, headers)
        emit(table if kind else f"{name}:\n{textwrap.indent(table, BELOW_ITS_KIND)}")
