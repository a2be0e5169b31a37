"""Checks of the shapes, sizes and layouts at which kernels switch code paths."""

from functools import partial

import torch

from losscli.implementations.errors import SubjectError
from losscli.implementations.requests import Call
from losscli.implementations.subject import Subject
from losscli.losses import ELEMENT, HIDDEN_STATE, LOSS, ROW, Shape
from losscli.truth.fingerprint import bits
from losscli.truth.problem import Problem, operand_of
from losscli.verify.checks.check import COPIES, Cost, Tally, check, takes_one_row, usual
from losscli.verify.geometry import geometry_of
from losscli.verify.geometry.element import CONTIGUOUS
from losscli.verify.geometry.geometry import of_shape, of_shapes


def _sizes(failed: list[str]) -> str:
    unit = " elements"
    if not all(size.endswith(unit) for size in failed):
        return f"with {'; '.join(failed)}"
    return f"at {', '.join(size.removesuffix(unit) for size in failed)}{unit}"


@check(
    place=60,
    facet="sizes",
    catches="dropped tails of elements, tokens, widths or classes, partial vectors treated as "
    "whole ones, the last classes of a row read twice or from the next row",
    advice="Handle sizes that are not a multiple of the tile, rows longer than a block, a single "
    "element or row, and empty operands.",
    formerly=("sizes", "row_lengths", "linear_sizes"),
    adapt=lambda case: geometry_of(case).for_sizes(case),
    mean_for_sum=True,
    units=(ELEMENT, ROW, HIDDEN_STATE),
    recompiles=True,
)
def boundary_sizes(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check sizes around those at which kernels switch code paths.

    Elementwise losses: 0 and 1 elements, each power of two up to a tile with its neighbours, and a
    few primes. Row-wise losses: 1 to 50,257 classes around the sizes of vectors, warps and blocks,
    a single row of 132,099 classes, a thousand rows of three, no rows. Fused linear losses: one
    token, width 1, one class, a vocabulary of 50,257, no tokens, sizes around the tiles of matrix
    products.
    """
    tally.first, tally.several = True, _sizes
    sizes = of_shapes(problem, geometry_of(problem.case).sizes)
    tally.judge_variants(problem, subject, sizes, usual)


Shapes = tuple[Shape, Shape]
_ROWS = (
    *((100, 2), (100, 4), (100, 8), (80, 12), (40, 24), (5, 1023), (5, 1024), (5, 1025)),
    *((5, 1500), (3, 2048), (3, 4099), (3, 4100), (2, 8195)),
)
_SHAPES: list[Shapes] = [
    *((shape, shape[1:]) for shape in _ROWS),
    *(((rows, columns), (rows, 1)) for rows, columns in ((100, 3), (33, 64), (3, 1500))),
    *(((1100, 7, 9), (7, 1)), ((5, 1), (40, 5, 7))),
    *(((40, 5, 7), shape) for shape in ((40, 1, 1), (5, 7), (40, 1, 7))),
]
_ON_A_GPU: list[Shapes] = [((2100, 300), (2100, 1)), ((2100, 300), (300,))]
"""More rows than the resident blocks of a GPU take at once; slow on a CPU."""


@check(
    place=170,
    facet="layouts",
    catches="the end of a row inside a vector or tile, a buffer that is too small for the "
    "repeated part",
    advice="Broadcast like PyTorch, from the last dimension on.",
    cost=Cost.QUICK,
    adapt=of_shape((1,), (1,)),
    mean_for_sum=True,
    units=(ELEMENT,),
    asks=takes_one_row,
    concerns=lambda implementation: not implementation.setting.whole_targets,
    needs="losses whose target may be one row",
    limits=lambda variant, _: True,
    recompiles=True,
)
def broadcasts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check broadcasts around the sizes at which kernels switch code paths.

    Rows and columns that repeat, in several dimensions and in the middle one, for losses whose
    function takes such shapes. Their sizes are a few vectors, around a tile, and larger.
    """
    shapes = [*_SHAPES, *(_ON_A_GPU if problem.case.device != "cpu" else ())]
    named = {f"{input} with {target}": (input, target) for input, target in shapes}
    tally.judge_variants(problem, subject, of_shapes(problem, named), usual)


@check(
    place=180,
    facet="sizes",
    catches="cache lines left unwritten by stores that bypass the caches",
    advice="Write every element of large results; use 64-bit indices.",
    formerly=("bulk", "row_bulk"),
    adapt=lambda case: geometry_of(case).for_repeats(case),
    asks=lambda case: case.reduction == "none",
    needs="losses without a reduction",
    units=(ELEMENT, ROW),
)
def large_outputs(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check results that are larger than the caches.

    Without a reduction: elementwise losses, or gradients of rows, of 32 MiB, made of a few thousand
    elements or a few dozen rows that repeat. Each repeat has to equal the first one, or be right by
    the oracle.

    GPU kernels treat only larger tensors as large.
    """
    oracle, incoming, first = problem.oracle, problem.usual, problem.case.spec.names[0]
    # Several values of a row lie in front of the rows.
    dimension = len(oracle.unreduced_shape) - len(oracle.units)
    wrt = tuple(name for name in problem.wrt if not oracle.is_summed(name))
    # More than most L2 caches hold, so that kernels begin to bypass them.
    count = 2**25 // problem.prediction.nbytes + 1
    operands = {
        name: values if oracle.is_summed(name) else torch.cat([values] * count)
        for name, values in problem.operands.items()
    }
    g = torch.cat([incoming.grad_output] * count, dimension)
    shifted = operands[first].roll(64, 0)  # elements or rows, which change no alignment
    subject.send(Call({**operands, first: shifted}, wrt, g))
    for part, got in subject.send(Call(operands, wrt, g)).items().items():
        due = g.shape if part == LOSS else operands[operand_of(part)].shape
        if got is None or got.shape != due:
            tally.judge_part(problem, incoming, part, got, "repeated")
            continue
        along = dimension if part == LOSS else 0
        repeats = got.unflatten(along, (count, -1)).movedim(along, 0)
        same = bits(repeats.reshape(count, -1))
        differ = (same != same[0]).any(1).nonzero().flatten().tolist()
        for number in [0, *differ[:16]]:
            where = f"repeat {number} of {count}"
            tally.judge_part(problem, incoming, part, repeats[number], where)


@check(
    place=50,
    facet="layouts",
    catches="a kernel that assumes contiguous or aligned operands, a wrong axis, one dtype read as "
    "another, gradients in other strides",
    advice="Do not assume contiguous, aligned operands: use the strides, or call contiguous(). A "
    "target of shape (N,) follows the last dimension; classes are dimension 1.",
    formerly=("row_layouts", "linear_layouts"),
    cost=Cost.FEW,
    adapt=lambda case: geometry_of(case).for_layouts(case),
    mean_for_sum=True,
    limits=lambda variant, _: variant not in CONTIGUOUS,
    needs_gradient=False,
    recompiles=True,
    one_process=COPIES,
)
def layouts(problem: Problem, subject: Subject, tally: Tally) -> None:
    """Check operands of other strides, shapes and dtypes.

    Transposed, sliced, strided, expanded and misaligned operands, with NaN in every gap.
    Elementwise losses: five dimensions in permuted orders, square and other operands, broadcasts of
    either operand, also in the middle dimension, targets of other dtypes, including integers.
    Row-wise losses: one row without a batch, dimensions behind the classes in several orders, class
    indices in int64, int32 and uint8. Fused linear losses: one hidden state, tokens in two and
    three dimensions.

    A wrong axis does not fit most shapes; some are square, where a transposed read fits.
    """
    geometry, own = geometry_of(problem.case), subject.implementation.held_to_oracle
    # A wrong class dimension finds invalid class indices, which on a GPU end a file's process.
    careful = not own and problem.case.device != "cpu"
    whole = subject.implementation.setting.whole_targets
    for name, make in geometry.layouts(problem):
        variant = problem.variant(name, make)
        if variant.refused or (whole and variant.case.target_broadcasts):
            continue
        if careful:
            variant = problem.variant(f"{name}, in range", partial(geometry.harmless, variant))
        fresh, several = subject.again(), geometry.grad_outputs(variant)
        for each in dict.fromkeys(several):
            try:
                answer = fresh.send(variant.call(each))
            except SubjectError as error:
                if error.refused and not own and geometry.may_be_refused(problem, name):
                    continue
                raise
            tally.judge_variant(name, variant, each, answer, named=len(several) > 1)
            if each == several[0]:
                tally.judge_plain(name, variant, fresh)
