"""How two operands can lie in memory: each entry makes an input and a target."""

from collections.abc import Callable

from torch import Tensor

Make = Callable[[tuple[int, ...]], Tensor]
"""Make a contiguous tensor of a shape, filled with values to compute on."""


def _offset(make: Make, shape: tuple[int, ...]) -> Tensor:
    count = 1
    for extent in shape:
        count *= extent
    return make((count + 1,))[1:].view(shape)


LAYOUTS: dict[str, Callable[[Make], tuple[Tensor, Tensor]]] = {
    "same shape": lambda make: (make((37, 53)), make((37, 53))),
    "target one row": lambda make: (make((37, 53)), make((53,))),
    # A row of whole 16-byte packs, narrower and wider than a block of threads.
    "target one short row": lambda make: (make((700, 24)), make((24,))),
    # A row of one pack: of 16 bits, of float32; by one block and by many.
    "target one row of eight": lambda make: (make((9, 8)), make((8,))),
    "target one row of four": lambda make: (make((9, 4)), make((4,))),
    "target eight columns": lambda make: (make((5000, 8)), make((8,))),
    "target one long row": lambda make: (make((5, 4800)), make((4800,))),
    # Rows shorter than a vector, in more elements than a tile of the GPU.
    "target one row of three": lambda make: (make((9000, 3)), make((3,))),
    "target one row of seven": lambda make: (make((4000, 7)), make((7,))),
    "target three in the middle": lambda make: (make((6000, 3, 2)), make((3, 1))),
    "input one row of three": lambda make: (make((3,)), make((9000, 3))),
    "target one column": lambda make: (make((37, 53)), make((37, 1))),
    "target one long column": lambda make: (make((3, 9001)), make((3, 1))),
    "target a scalar": lambda make: (make((37, 53)), make(())),
    "target in the middle": lambda make: (make((5, 6, 7)), make((6, 1))),
    "target on both sides": lambda make: (make((5, 6, 7)), make((5, 1, 7))),
    # Packs along the first dimension, by rows: short ones, one dimension more before the rows, and
    # ones longer than a block of threads; then without anything that repeats.
    "target on both sides, in packs": lambda make: (make((77, 24, 64)), make((77, 1, 64))),
    "target on both sides, five ways": lambda make: (
        make((3, 70, 5, 3, 8)),
        make((3, 70, 1, 3, 8)),
    ),
    "target on both sides, long": lambda make: (make((3, 5, 4096)), make((3, 1, 4096))),
    "short lines of packs": lambda make: (make((77, 5, 40))[..., :32], make((77, 5, 32))),
    "short lines in planes": lambda make: (make((130, 33, 72))[..., 8:], make((130, 33, 64))),
    "packs transposed": lambda make: (make((192, 264)).t(), make((264, 192))),
    "input one row": lambda make: (make((53,)), make((37, 53))),
    "input a column, target a row": lambda make: (make((37, 1)), make((1, 53))),
    "both transposed": lambda make: (make((53, 37)).t(), make((53, 37)).t()),
    "input transposed": lambda make: (make((53, 37)).t(), make((37, 53))),
    "channels last": lambda make: (make((2, 5, 7, 3)).permute(0, 3, 1, 2), make((2, 3, 5, 7))),
    "transposed, target one row": lambda make: (make((53, 37)).t(), make((53,))),
    "strided": lambda make: (make((37, 106))[:, ::2], make((37, 53))),
    "cut out of a wider one": lambda make: (make((37, 60))[:, 3:56], make((37, 60))[:, 3:56]),
    "expanded": lambda make: (make((1, 53)).expand(37, 53), make((37, 53))),
    "expanded and broadcast": lambda make: (make((4, 6, 5)), make((1, 6, 1)).expand(4, 6, 1)),
    "one element, expanded and broadcast": lambda make: (make((1,)).expand(1, 4), make((3, 1))),
    "offset by one element": lambda make: (_offset(make, (37, 53)), _offset(make, (37, 53))),
    "row offset by one element": lambda make: (make((37, 48)), _offset(make, (48,))),
    "empty": lambda make: (make((0, 5)), make((0, 5))),
    "empty rows": lambda make: (make((0, 5)), make((5,))),
    "empty rows of whole packs": lambda make: (make((0, 8)), make((8,))),
    "empty by broadcasting": lambda make: (make((1, 0)), make((3, 0))),
    "one element": lambda make: (make((1,)), make((1,))),
    "no dimensions": lambda make: (make(()), make(())),
    "leading one": lambda make: (make((53,)), make((1, 53))),
}
