"""Calls for `make sanitize` of row-wise losses other than cross entropy: they reach each kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

# By the bytes of a row: less than the slots of a warp take, the slots of one warp, of several, of
# all of a block and of clusters, and more than these hold; each but for a vector, and one element
# more.
LENGTHS = (1, 16, 129, 1024, 4097, 16384, 70003, 140003)
LONGEST = 600_011
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class RowCall:
    """A call of a row-wise loss and of its gradients."""

    loss: str
    dtype: str
    length: int
    rows: int = 5
    reduction: str = "mean"
    layout: str = "dense"
    """``dense``, ``shifted`` (rows that begin within a vector), ``apart`` (operands that do not lie
    alike) or ``transposed``."""
    gradients: int = 1
    """The number of operands that have a gradient, the first ones."""
    masked: bool = False
    """Whether rows are left out."""
    wrong: bool = False
    """Whether the last row has no class."""


def calls(loss: str, rows: int, roles: str) -> Iterator[RowCall]:
    """Yield the calls of a loss with so many row operands."""
    # Two values of a row have no reduction.
    reduction = "none" if loss == "token_log_probs" else "mean"
    masked = "m" in roles
    for dtype, length in itertools.product(DTYPES, LENGTHS):
        yield RowCall(loss, dtype, length, reduction=reduction, gradients=0, masked=masked)
        yield RowCall(loss, dtype, length, reduction=reduction, gradients=rows)
        yield RowCall(loss, dtype, length, reduction="none", layout="shifted", masked=masked)
    for dtype, length in itertools.product(("float64", "float16"), (9, 1025)):
        yield RowCall(loss, dtype, length, reduction=reduction, gradients=rows)
    for layout in ("apart", "transposed"):
        yield RowCall(loss, "bfloat16", 1025, reduction="none", layout=layout, gradients=rows)
    if "l" in roles:
        yield RowCall(loss, "bfloat16", 1025, reduction="none", wrong=True)
    yield RowCall(loss, "bfloat16", LONGEST, 2, reduction="none")
    # Several rows of a warp.
    for dtype, layout in itertools.product(DTYPES, ("dense", "shifted")):
        yield RowCall(loss, dtype, 333, 4001, reduction, layout, gradients=0, masked=masked)
    # More rows than teams stay, so that each takes several.
    for many, length in ((20001, 3), (5000, 129), (700, 16384), (150, 70003)):
        yield RowCall(loss, "bfloat16", length, many, reduction=reduction)


def make(call: RowCall, site: int) -> None:
    """Make one call; values come from the host, so that initcheck knows they were written."""
    import torch

    from losscli.losses import ROW_LOSSES

    spec = ROW_LOSSES[call.loss]
    generator = torch.Generator().manual_seed(call.length)
    dtype = getattr(torch, call.dtype)

    def drawn(place: int) -> torch.Tensor:
        size, apart = call.length, {"shifted": 1, "apart": place}.get(call.layout, 0)
        if call.layout == "transposed":
            return torch.randn((size, call.rows), generator=generator).to(dtype).cuda().t()
        whole = torch.randn((call.rows, size + 3 * bool(apart)), generator=generator)
        return whole.to(dtype).cuda()[:, apart : size + apart]

    operands: list[torch.Tensor | None] = []
    for place, role in enumerate(spec.roles):
        if role == "r":
            operands.append(drawn(place).requires_grad_(place < call.gradients))
        elif role == "l":
            labels = torch.randint(call.length, (call.rows,), generator=generator)
            if call.wrong:
                labels[-1] = call.length
            operands.append(labels.cuda())
        elif role == "t":
            signs = 2 * torch.randint(2, (call.rows,), generator=generator) - 1
            operands.append(signs.to(dtype).cuda())
        elif role == "m" and call.masked:
            operands.append((torch.rand(call.rows, generator=generator) < 0.5).cuda())
        else:
            operands.append(None)
    settings = (call.reduction, *spec.resolve({}).values())
    loss = getattr(torch.ops.losscli, call.loss)(*operands, *settings, site)
    wanted = [operand for operand in operands if operand is not None and operand.requires_grad]
    if wanted:
        torch.autograd.grad(loss, wanted, torch.full(loss.shape, 0.5).to(loss.dtype).cuda())
