"""Calls for `make sanitize` of rows in parts: csrc/parts, and what prepares its operands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.linear.parts import Found, Part, Rows

# Of a part, by its bytes: less than a vector, packs with ragged ends, a block's stretch of a row.
WIDTHS = ((1, 8), (37, 3), (1029, 1024), (33001, 7))
DTYPES = ("float32", "float64", "float16", "bfloat16")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "z_loss": {"z_loss": 0.1, "temperature": 1.7},
    "softcap": {"softcap": 5.0},
    "smoothing": {"label_smoothing": 0.2, "softcap": 5.0},
}
ENTROPIES, DIVERGENCE = "entropies", "divergence"


@dataclass(frozen=True)
class PartCall:
    """A loss of rows whose classes are in two parts, and both gradients."""

    dtype: str
    widths: tuple[int, int]
    form: str
    """One of SETTINGS, ``entropies`` or ``divergence``."""
    rows: int = 5
    reduction: str = "mean"
    layout: str = "dense"
    """``dense``, or ``shifted``: rows that begin within a vector."""
    weighted: bool = False

    @property
    def loss(self) -> str:
        """The loss that names the kernels."""
        return f"parts of {self.form}"

    @property
    def classes(self) -> int:
        return sum(self.widths)


def calls() -> Iterator[PartCall]:
    for dtype, widths in itertools.product(DTYPES, WIDTHS):
        for form in (*SETTINGS, ENTROPIES, DIVERGENCE):
            reduction = "none" if form in (ENTROPIES, DIVERGENCE) else "mean"
            yield PartCall(dtype, widths, form, reduction=reduction)
        yield PartCall(dtype, widths, "plain", layout="shifted", reduction="sum")
        yield PartCall(dtype, widths, DIVERGENCE, layout="shifted", reduction="none")
        yield PartCall(dtype, widths, "smoothing", weighted=True)
        yield PartCall(dtype, widths, "plain", weighted=True, reduction="none")
    for dtype, form in itertools.product(("float32", "bfloat16"), ("plain", DIVERGENCE)):
        reduction = "none" if form == DIVERGENCE else "mean"
        yield PartCall(dtype, (37, 3), form, 3001, reduction)


def put_together(
    logits: Tensor, widths: Sequence[int], rows: Rows
) -> tuple[Tensor, Found, list[Part]]:
    """Return the losses of rows whose classes are in parts of such widths."""
    from losscli.linear.parts import Part, finished

    firsts = itertools.accumulate(widths, initial=0)
    parts = [Part(rows, logits[:, first:end], first) for first, end in itertools.pairwise(firsts)]
    numbers = [part.numbers() for part in parts]
    losses, _, found = finished(rows, numbers, widths[0], logits.shape[1])
    return losses, found, parts


def make(call: PartCall, device: str = "cuda") -> None:
    """Make one call; values come from the host, so that initcheck knows they were written."""
    import torch

    from losscli.linear.kernels import Settings
    from losscli.linear.parts import Rows, operators

    generator = torch.Generator().manual_seed(call.classes)
    dtype = getattr(torch, call.dtype)

    def drawn() -> torch.Tensor:
        beside = int(call.layout == "shifted")
        shape = (call.rows, call.classes + beside)
        return torch.randn(shape, generator=generator).to(device, dtype)[:, beside:]

    logits = drawn()
    if call.form == DIVERGENCE:
        other = drawn()
        mask = (torch.arange(call.rows) != 1).to(device)
        held = torch.tensor(call.widths).to(device)
        halves = list(zip(*(each.split(call.widths, 1) for each in (logits, other)), strict=True))
        numbers_of = torch.ops.losscli.kl_divergence_of_part
        numbers = torch.stack([numbers_of(*half, mask, call.reduction, 1.4) for half in halves])
        own = operators(logits)
        whole = own.join_divergences(numbers, held, mask, call.classes, -1, 0, 1.4)
        for half, wanted in itertools.product(halves, ((True, True), (False, True))):
            own.divergence_gradients(whole[0], *half, mask, whole, 1.4, wanted)
        return
    weight = torch.rand(call.classes, generator=generator).to(device, dtype)
    target = torch.randint(call.classes, (call.rows,), generator=generator)
    if call.form != ENTROPIES:
        target[1] = -100
    with_entropies = call.form == ENTROPIES
    settings = Settings(entropy=with_entropies, **SETTINGS.get(call.form, {}))
    rows = Rows(
        *(target.to(device), call.classes, weight if call.weighted else None, settings),
        *(call.reduction, not with_entropies, False),
    )
    loss, found, parts = put_together(logits, call.widths, rows)
    for part in parts:
        part.gradient(found, loss)
