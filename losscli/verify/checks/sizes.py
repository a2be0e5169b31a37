"""Checks of the shapes and sizes at which kernels switch code paths."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from losscli.implementations.requests import Call
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, LOSS, ROW, Shape
from losscli.truth.fingerprint import bits
from losscli.truth.problem import Problem, operand_of
from losscli.verify.checks.check import Cost, Tally, Variants, check, of_shape, takes_one_row, usual

LARGEST_POWER = 14
"""16,384 elements, more than a tile of any kernel here."""
PRIMES = (37, 613, 4099)
SIZES = sorted(
    {0, 1, *PRIMES} | {2**power + by for power in range(1, LARGEST_POWER + 1) for by in (-1, 0, 1)}
)
_UNIT = " elements"


def _sizes(failed: list[str]) -> str:
    return f"at {', '.join(size.removesuffix(_UNIT) for size in failed)}{_UNIT}"


@check(
    place=60,
    catches="dropped tails, whole vectors treated as ragged ones",
    advice="Handle sizes that are no multiple of the tile, single elements and empty tensors.",
    adapt=of_shape((1,), (1,)),
    tally=partial(Tally, first=True, name=_sizes),
    mean_for_sum=True,
    units=(ELEMENT,),
    recompiles=True,
)
def sizes(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check sizes around those at which kernels switch code paths.

    Empty tensors, one element, each power of two up to a tile with its neighbours, and a few
    primes.
    """
    shapes = {f"{size}{_UNIT}": ((size,), (size,)) for size in SIZES}
    tally.judge_variants(problem, subject, _of(problem, shapes), usual)


def _of(problem: Problem, shapes: Mapping[str, tuple[Shape, Shape | None]]) -> Variants:
    """Yield a problem of each shape of prediction and target."""
    for name, shape in shapes.items():
        yield name, partial(problem.reshaped, *shape)


ROW_LENGTHS = (1, 2, 3, 7, 8, 9, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4097, 50257)
"""One, and the sizes of vectors, warps and blocks with their neighbours; a vocabulary."""
LONG_ROW = 4096
"""Longer rows come fewer."""
ROW_SHAPES: tuple[Shape, ...] = (
    # and a single row so long that several threads or blocks share it
    *((3 if length > LONG_ROW else 5, length) for length in ROW_LENGTHS),
    *((0, 7), (1, 1000), (1031, 3), (67, 129), (1, 132099)),
)


@check(
    place=80,
    catches="the last classes of a row left out, read twice, or read from the next row",
    advice="Handle rows of any length: the last classes, one class, more than a block has.",
    adapt=of_shape((1, 2)),
    tally=partial(Tally, first=True),
    mean_for_sum=True,
    units=(ROW,),
)
def row_lengths(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check rows of the lengths at which kernels switch code paths.

    For losses over rows: 1 to 50,257 classes around the sizes of vectors, warps and blocks, a
    single row, also one of 132,099 classes, a thousand rows of three classes, no rows.
    """
    shapes = {f"{shape[0]} rows of {shape[1]}": (shape, None) for shape in ROW_SHAPES}
    tally.judge_variants(problem, subject, _of(problem, shapes), usual)


TOKENS: tuple[Shape, ...] = (
    *((1, 1, 1), (1, 24, 1000), (5, 1, 7), (3, 8, 1), (0, 24, 101)),
    *((1031, 8, 3), (129, 64, 129), (67, 33, 1025), (3, 16, 50257)),
)
"""Tokens, width and classes: one of each, none, around tiles of products, and a vocabulary."""


@check(
    place=130,
    catches="tails of tokens, widths or classes",
    advice="Handle any number of tokens and classes and any width, one and none too.",
    adapt=of_shape((12, 24, 131)),
    mean_for_sum=True,
    units=(HIDDEN_STATE,),
)
def linear_sizes(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check the sizes of hidden states.

    For losses of hidden states: one token, one number, one class, a vocabulary of 50,257, no
    tokens, sizes around the tiles of products.
    """
    shapes = {"{} tokens of {}, {} classes".format(*shape): (shape, None) for shape in TOKENS}
    tally.judge_variants(problem, subject, _of(problem, shapes), usual)


Shapes = tuple[Shape, Shape]
_ROWS: list[Shapes] = [
    ((rows, columns), (columns,))
    for rows, lengths in (
        *((100, (2, 4, 8)), (80, (12,)), (40, (24,))),
        *((5, (1023, 1024, 1025, 1500)), (3, (2048, 4099, 4100)), (2, (8195,))),
    )
    for columns in lengths
]
_COLUMNS: list[Shapes] = [
    ((rows, columns), (rows, 1)) for rows, columns in ((100, 3), (33, 64), (3, 1500))
]
_SEVERAL: list[Shapes] = [
    *(((1100, 7, 9), (7, 1)), ((5, 1), (40, 5, 7))),
    *(((40, 5, 7), shape) for shape in ((40, 1, 1), (5, 7), (40, 1, 7))),
]
_ON_A_GPU: list[Shapes] = [((2100, 300), (2100, 1)), ((2100, 300), (300,))]
"""More than the blocks that a GPU holds at a time take at once; a CPU takes a while for them."""


@check(
    place=170,
    catches="the end of a row inside a vector or tile, a buffer that is too small for the repeated "
    "part",
    advice="Broadcast as PyTorch does, from the last dimension on.",
    cost=Cost.QUICK,
    adapt=of_shape((1,), (1,)),
    mean_for_sum=True,
    units=(ELEMENT,),
    asks=takes_one_row,
    needs="losses whose target may be one row",
    recompiles=True,
)
def broadcasts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check broadcasts around the sizes at which kernels switch code paths.

    Rows and columns that repeat, of a few vectors, around a tile and beyond, in several dimensions
    and in the middle one; of losses whose function takes such shapes.
    """
    shapes = [*_ROWS, *_COLUMNS, *_SEVERAL]
    if problem.case.device != "cpu":
        shapes += _ON_A_GPU
    named = {f"{input} with {target}": (input, target) for input, target in shapes}
    tally.judge_variants(problem, subject, _of(problem, named), usual)


BYTES = 2**25
"""The size of a result: more than most second-level caches, where kernels begin to go past them."""
PERIOD = 4099
"""Elements that are repeated: a prime, so that repeats begin at any place of a vector."""
ROWS_PERIOD = (67, 509)
"""The rows that are repeated: primes, so that rows and repeats begin at any place of a vector."""
_MOST_JUDGED = 16
"""Repeats that differ and are held against the oracle."""


@check(
    place=180,
    catches="cache lines that are not written where stores bypass the caches",
    advice="Write every element of large results; use 64-bit indices.",
    adapt=of_shape((PERIOD,), (PERIOD,)),
    asks=lambda case: case.reduction == "none",
    needs="losses without a reduction",
    units=(ELEMENT,),
)
def bulk(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check results that are larger than the caches.

    Results of 32 MiB without a reduction, made of a few thousand elements that repeat: each repeat
    has to equal the first one, or be right by the oracle.

    On a CPU this also finds what a kernel for large tensors alone leaves out; what a GPU's kernels
    treat as large begins beyond this.
    """
    _judge_repeats(problem, subject, tally, 64)


@check(
    place=110,
    catches="cache lines that are not written where stores bypass the caches",
    advice="Write every class of each row, however large the gradient is.",
    adapt=of_shape(ROWS_PERIOD, scale=1.0),
    asks=lambda case: case.reduction == "none",
    needs="losses without a reduction",
    units=(ROW,),
)
def row_bulk(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check gradients of rows that are larger than the caches.

    For losses over rows without a reduction: gradients of 32 MiB, made of a few dozen rows that
    repeat, of which each repeat has to equal the first one, or be right by the oracle.
    """
    _judge_repeats(problem, subject, tally, 11)


def _judge_repeats(problem: Problem, subject: Subject, tally: Tally, shift: int) -> None:
    """Judge repeats of the loss, and of the gradients of the operands that are repeated.

    ``shift``: by how many elements or rows the prediction of the call before lies off: as well
    aligned.
    """
    oracle, incoming, first = problem.oracle, problem.usual, problem.case.spec.names[0]
    # Several values of a row lie in front of the rows.
    dimension = len(oracle.unreduced_shape) - len(oracle.units)
    wrt = tuple(name for name in problem.wrt if not oracle.is_summed(name))
    count = BYTES // problem.prediction.nbytes + 1
    operands = {
        name: values if oracle.is_summed(name) else torch.cat([values] * count)
        for name, values in problem.operands.items()
    }
    g = torch.cat([incoming.grad_output] * count, dimension)
    subject.send(Call({**operands, first: operands[first].roll(shift, 0)}, wrt, g))
    answer = subject.send(Call(operands, wrt, g))
    for part, got in answer.items().items():
        due = g.shape if part == LOSS else operands[operand_of(part)].shape
        if got is None or got.shape != due:
            tally.judge_part(problem, incoming, part, got, "repeated")
            continue
        along = dimension if part == LOSS else 0
        repeats = got.unflatten(along, (count, -1)).movedim(along, 0)
        same = bits(repeats.reshape(count, -1))
        differ = (same != same[0]).any(1).nonzero().flatten().tolist()
        for number in [0, *differ[:_MOST_JUDGED]]:
            where = f"repeat {number} of {count}"
            tally.judge_part(problem, incoming, part, repeats[number], where)
