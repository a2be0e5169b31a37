"""Calls of elementwise losses for `make sanitize`: they reach each kernel and each formula."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.kernels.layouts import LAYOUTS, Make
from tests.machinery import MACHINERY

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from losscli.losses import Domain

SIZES: dict[int, str] = {
    1: "one element",
    3: "less than a pack",
    4: "a float32 pack",
    5: "one more",
    8: "a 16-bit pack",
    9: "one more",
    1023: "less than one block takes by a kernel of its own",
    1024: "as much",
    1025: "one more",
    4097: "one more than a float32 tile",
    8193: "one more than a 16-bit tile",
    24583: "a cluster of blocks, the last one ragged",
}
MANY: dict[int, str] = {
    8 * 8192 + 5: "more blocks than a cluster has",
    33 * 8192 + 1: "one element in the last",
    450 * 4096 + 3: "more float32 tiles than blocks",
}
LARGE: dict[str, int] = {"float32": 140_000_005, "bfloat16": 280_000_009}
"""Elements that take the cuts of large tensors, and where gradients are written along with a row or
without one, more blocks than post their sums; by dtype, 534 MiB."""
LARGE_ROW = 8192
COSTLY = "kl_div"
"""A loss whose large tensors have launches of their own."""

SINGLE_PASS = "single_pass"
STRATEGIES = (SINGLE_PASS, "atomic", "two_pass", "tree", "torch_sum")
DTYPES = ("float32", "float64", "float16", "bfloat16")


def _line(make: Make, width: int, whole: int, first: int = 0) -> Tensor:
    """Return lines cut out of wider ones."""
    return make((33, whole))[:, first : first + width]


STRIDED: dict[str, Callable[[Make], tuple[Tensor, Tensor]]] = {
    # Lines, a segment a warp: of whole packs, of elements, with ends that fill neither.
    "lines of whole packs": lambda make: (_line(make, 1024, 2048), make((33, 1024))),
    "lines of packs, a ragged end": lambda make: (_line(make, 1160, 1200), make((33, 1160))),
    "lines of no whole packs": lambda make: (_line(make, 1157, 1201), make((33, 1157))),
    "lines that begin within a pack": lambda make: (_line(make, 1024, 1032, 1), make((33, 1024))),
    "every second of a line": lambda make: (make((33, 1040))[:, ::2], make((33, 520))),
    "lines beside a column": lambda make: (_line(make, 1024, 1032), make((33, 1))),
    "short lines": lambda make: (make((3000, 9))[:, :5], make((3000, 5))),
    "short lines of whole packs": lambda make: (make((3000, 24))[:, :8], make((3000, 8))),
    # Tiles in shared memory: whole ones, ragged ones, several batches of them.
    "transposed, whole tiles": lambda make: (make((128, 128)).t(), make((128, 128))),
    "transposed, partial tiles": lambda make: (make((131, 217)).t(), make((217, 131))),
    "target transposed": lambda make: (make((70, 45)), make((45, 70)).t()),
    "transposed in batches": lambda make: (
        make((5, 71, 93)).transpose(1, 2),
        make((5, 93, 71)),
    ),
    "first for last of three": lambda make: (
        make((71, 5, 93)).transpose(0, 2),
        make((93, 5, 71)),
    ),
    # A target that repeats in the middle, beside lines and beside short ones.
    "middle of long lines": lambda make: (make((6, 50, 300)), make((6, 1, 300))),
    "middle of short lines": lambda make: (make((60, 50, 3)), make((60, 1, 3))),
    # A shared gradient in several bands, of one element, of few and of many summands.
    "shared in bands": lambda make: (make((20000, 40)), make((40,))),
    "shared by all": lambda make: (make((70001,)), make((1,))),
    "shared by three": lambda make: (make((3, 5000)), make((5000,))),
}
EVERY_LAYOUT = LAYOUTS | STRIDED
MIXED = ("float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Dtypes of a target with an input of another."""
STEPS = (0.5, 0.5, 0.5, 2.0, 3.0, 4.0, 4.0, 4.0)
"""Successive grad_outputs: a new one, which is predicted and met; others, until forward computes no
gradient; and one that is predicted again."""


@dataclass(frozen=True)
class Call:
    """One call of an op, on operands of a layout."""

    loss: str
    dtype: str
    layout: str = ""
    """One of EVERY_LAYOUT; empty is one dimension of ``size``."""
    size: int = 0
    row: int = 0
    """Columns that the target repeats, with ``size`` rows of them; 0 where it does not."""
    reduction: str = "mean"
    strategy: str = SINGLE_PASS
    order: int = 1
    """Derivatives: 0 the loss alone, 1 both gradients, 2 their derivatives as well."""
    incoming: tuple[float, ...] = (-3.0,)
    """The grad_output of each step; the first prediction is 1."""
    target: str = ""
    """Dtype of the operands after the prediction; empty is ``dtype``."""


def calls() -> Iterator[Call]:
    """Yield every call: those of the loops, and of each other loss's formula."""
    from losscli.losses import LOSSES

    yield from calls_of_loops()
    for loss, dtype in itertools.product(LOSSES, DTYPES):
        if loss not in MACHINERY:
            yield from calls_of_formula(loss, dtype)
    for (dtype, size), order in itertools.product(LARGE.items(), (0, 1)):
        yield Call(COSTLY, dtype, size=size, order=order)


def calls_of_formula(loss: str, dtype: str) -> Iterator[Call]:
    """Yield calls that compute each part of a formula: value, first and second gradients."""
    for order in (0, 1, 2):
        yield Call(loss, dtype, size=8193, order=order)
    yield Call(loss, dtype, "target one row", order=2)
    yield Call(loss, dtype, "transposed, partial tiles")
    yield Call(loss, dtype, size=1025, reduction="none", order=2)


def calls_of_loops() -> Iterator[Call]:
    """Yield some 280 calls a loss, which reach every loop."""
    losses = MACHINERY
    for loss, dtype, size in itertools.product(losses, DTYPES, SIZES):
        yield Call(loss, dtype, size=size, order=0)
        yield Call(loss, dtype, size=size, incoming=(1.0,))
    for loss, dtype, size in itertools.product(losses, DTYPES, (1, 9, 8193, 16385)):
        yield Call(loss, dtype, size=size, reduction="none")
    for loss, dtype, layout in itertools.product(losses, ("float32", "bfloat16"), LAYOUTS):
        yield Call(loss, dtype, layout)
    for loss, dtype in itertools.product(losses, DTYPES):
        yield Call(loss, dtype, "target one row", order=2)
        yield Call(loss, dtype, size=1025, reduction="none", order=2)
    turns = itertools.cycle(losses)
    for layout in EVERY_LAYOUT:
        yield Call(next(turns), "float32", layout, order=0)
    yield from strided_calls(turns)
    for strategy, dtype, size in itertools.product(
        STRATEGIES, ("float32", "bfloat16"), (1, 8193, *MANY)
    ):
        for order in (0, 1):
            yield Call(next(turns), dtype, size=size, strategy=strategy, order=order)
    for strategy, dtype in itertools.product(STRATEGIES, ("float64", "float16")):
        yield Call(next(turns), dtype, size=24583, reduction="sum", strategy=strategy)
    for (dtype, size), order in itertools.product(LARGE.items(), (0, 1)):
        yield Call(losses[0], dtype, size=size, order=order)
        yield Call(losses[-1], dtype, size=size // LARGE_ROW + 1, row=LARGE_ROW, order=order)


def strided_calls(turns: Iterator[str]) -> Iterator[Call]:
    """Yield calls on strided operands or several dtypes, and training steps."""
    for layout, reduction, dtype in itertools.product(
        STRIDED, ("mean", "none"), ("float32", "bfloat16")
    ):
        yield Call(next(turns), dtype, layout, reduction=reduction)
    for layout in STRIDED:
        yield Call(next(turns), "float64", layout, reduction="sum")
    places = ("", "transposed, partial tiles", "lines of packs, a ragged end")
    for target, layout in itertools.product(MIXED, places):
        for dtype, reduction in (("float32", "mean"), ("bfloat16", "none")):
            yield Call(
                next(turns),
                dtype,
                layout,
                0 if layout else 4097,
                reduction=reduction,
                target=target,
            )
    for dtype, (layout, size) in itertools.product(
        ("float32", "bfloat16"),
        (("", 9), ("", 24583), ("short lines", 0), ("transposed, partial tiles", 0)),
    ):
        yield Call(next(turns), dtype, layout, size, incoming=STEPS)
    yield Call(next(turns), "float32", "target one row", incoming=STEPS)


def make(call: Call, site: int) -> None:
    """Make one call; values come from the host, so that initcheck knows they were written."""
    import torch

    from losscli.losses import LOSSES
    from tests.kernels.losses import PARAMETERS

    generator = torch.Generator().manual_seed(call.size)
    dtypes = [getattr(torch, name) for name in (call.dtype, call.target or call.dtype)]

    def filled(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator).cuda()

    def drawn(domain: Domain, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        draw = torch.rand if domain.always_uniform else torch.randn
        return domain.of_draws(draw(shape, generator=generator)).cuda().to(dtype)

    shape = (call.size, call.row) if call.row else (call.size,)
    make_pair = EVERY_LAYOUT[call.layout] if call.layout else lambda m: (m(shape), m(shape[-1:]))
    spec = LOSSES[call.loss]
    operands = []
    for operand in spec.operands:
        first = not operands
        # An operand is laid out in its dtype: a conversion would move it.
        makes = partial(drawn, operand.domain, dtypes[0] if first else dtypes[1])
        values = make_pair(makes)[0 if first else 1].detach()
        has_gradient = operand.differentiable and values.is_floating_point()
        operands.append(values.requires_grad_(call.order > 0 and has_gradient))
    parameters = spec.resolve(PARAMETERS[call.loss]).values()
    settings = (call.reduction, *parameters)
    last: int | str
    if call.strategy == SINGLE_PASS:
        op, last = getattr(torch.ops.losscli, call.loss), site
    else:
        op, last = getattr(torch.ops.losscli_bench, call.loss), call.strategy
    for value in call.incoming:
        loss = op.default(*operands, *settings, last)
        if call.order == 0:
            return
        wanted = [operand for operand in operands if operand.requires_grad]
        incoming = torch.full(loss.shape, value).to(loss.dtype).cuda()
        gradients = torch.autograd.grad(loss, wanted, incoming, create_graph=call.order == 2)
    if call.order == 2:
        toward = [filled(tuple(gradient.shape)).to(gradient.dtype) for gradient in gradients]
        torch.autograd.grad(gradients, wanted, toward, allow_unused=True)
