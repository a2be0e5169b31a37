"""Calls of cross entropy for `make sanitize`: they reach each kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

# By the bytes of a row: one thread's vectors, a warp's, a block's, the shared memory of a block and
# of clusters of 2, 4 and 8 blocks; each but for a vector, and one element more.
CLASSES = (1, 7, 8, 16, 129, 1024, 4097, 16384, 40001, 70003, 140003, 300007, 600011)
DTYPES = ("float32", "float64", "float16", "bfloat16")
STEPS = (0.5, 0.5, 2.0, 3.0, 3.0)
"""Successive grad_outputs: predictions are made, met and missed."""


@dataclass(frozen=True)
class RowCall:
    dtype: str
    classes: int
    rows: int = 5
    reduction: str = "mean"
    layout: str = "dense"
    """``dense``, ``shifted`` (rows that begin within a vector), ``transposed`` or ``inner``."""
    target: str = "int64"
    """The dtype of class indices; ``probabilities``."""
    weighted: bool = False
    ignored: bool = False
    """Whether the target of the first row is ignored."""
    wrong: bool = False
    """Whether the target of the last row is no class."""
    smoothing: float = 0.0
    softcap: float = 0.0
    incoming: tuple[float, ...] = (1.0,)
    """The grad_outputs of successive steps; none for the loss alone."""
    in_place: bool = False


def calls() -> Iterator[RowCall]:
    for dtype, classes in itertools.product(DTYPES, CLASSES):
        yield RowCall(dtype, classes, incoming=())
        yield RowCall(dtype, classes, ignored=True)
    for dtype, classes in itertools.product(("float32", "bfloat16"), CLASSES):
        yield RowCall(dtype, classes, layout="shifted", reduction="sum")
        yield RowCall(dtype, classes, incoming=STEPS, weighted=True)
    for dtype, classes in itertools.product(DTYPES, (9, 1025)):
        for layout in ("transposed", "inner"):
            yield RowCall(dtype, classes, layout=layout, reduction="none", ignored=True)
        yield RowCall(dtype, classes, target="probabilities", weighted=True)
        yield RowCall(dtype, classes, smoothing=0.1, weighted=True, ignored=True)
        yield RowCall(dtype, classes, softcap=3.7, target="int32")
        yield RowCall(dtype, classes, in_place=True)
        yield RowCall(dtype, classes, reduction="none", incoming=STEPS)
    # Label smoothing and softcap in the kernels that read a row once.
    for dtype, classes in itertools.product(("float32", "bfloat16"), CLASSES):
        for softcap, layout in itertools.product((0.0, 3.7), ("dense", "shifted")):
            yield RowCall(
                dtype, classes, layout=layout, ignored=True, smoothing=0.1, softcap=softcap
            )
        yield RowCall(dtype, classes, smoothing=0.1, incoming=())
        yield RowCall(dtype, classes, softcap=3.7, incoming=STEPS)
    for classes, target in itertools.product((9, 1025, 140003), ("int64", "int32", "uint8")):
        yield RowCall("bfloat16", classes, target=target, wrong=True)
    # Several rows of a warp.
    for dtype, layout in itertools.product(("float32", "bfloat16"), ("dense", "shifted")):
        for target, weighted in itertools.product(("int64", "probabilities"), (True, False)):
            yield RowCall(
                *(dtype, 333, 4001, "mean", layout, target, weighted),
                smoothing=0.1,
                incoming=(),
            )
    # More rows than blocks stay, so that each takes several; more rows than one block sums.
    for dtype, (rows, classes) in itertools.product(
        ("float32", "bfloat16"), ((70001, 3), (3000, 129), (700, 16384), (300, 70003))
    ):
        yield RowCall(dtype, classes, rows, incoming=())
        yield RowCall(dtype, classes, rows)


def make(call: RowCall, site: int) -> None:
    """Make one call; values come from the host, so that initcheck knows they were written."""
    import torch

    generator = torch.Generator().manual_seed(call.classes)
    dtype = getattr(torch, call.dtype)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    shape: tuple[int, ...] = (call.rows, call.classes)
    if call.layout == "shifted":
        input = drawn(call.rows, call.classes + 3).cuda()[:, 1 : call.classes + 1]
    elif call.layout == "transposed":
        input = drawn(call.classes, call.rows).cuda().t()
    elif call.layout == "inner":
        shape = (call.rows, call.classes, 3)
        input = drawn(*shape).cuda()
    else:
        input = drawn(*shape).cuda()
    if call.target == "probabilities":
        target = torch.rand(shape, generator=generator).to(dtype)
    else:
        of_rows = (*shape[:1], *shape[2:])
        kind = getattr(torch, call.target)
        most = min(call.classes, torch.iinfo(kind).max)
        target = torch.randint(most, of_rows, generator=generator).to(kind)
        if call.ignored:
            target[0] = -100
        if call.wrong:
            target[-1] = min(call.classes, torch.iinfo(kind).max)
    target = target.cuda()
    weight = torch.rand(call.classes, generator=generator).to(dtype).cuda()
    operands = (target, weight if call.weighted else None)
    settings = (call.reduction, -100, call.smoothing, 1.0, call.softcap, 0.0)
    form = "_with_probabilities" if call.target == "probabilities" else ""
    if call.in_place:
        getattr(torch.ops.losscli, f"cross_entropy{form}_with_grad_")(input, *operands, *settings)
        return
    op = getattr(torch.ops.losscli, f"cross_entropy{form}")
    input.requires_grad_(bool(call.incoming))
    if not call.incoming:
        op(input, *operands, *settings, site)
    for value in call.incoming:
        loss = op(input, *operands, *settings, site)
        incoming = torch.full(loss.shape, value).to(loss.dtype).cuda()
        torch.autograd.grad(loss, input, incoming)
