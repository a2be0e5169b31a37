"""The memory layouts of operands: the shapes of each layout. Nothing here needs torch.

- ``contiguous``: both operands are contiguous;
- ``sliced``: both are views of tensors that are one longer in the last dimension, the prediction
  without the last column, ``p[..., :-1]``, the target without the first, ``t[..., 1:]``, as the
  shift of next-token losses makes them;
- ``transposed``: the prediction is the transpose, in its last two dimensions, of a contiguous
  tensor, the target is contiguous;
- ``broadcast_middle``: the last dimension N of the size is folded into k x N/k, with the largest
  divisor k of N up to its square root, and the target has a 1 in place of k: (B, k, N/k) against
  (B, 1, N/k), so that the target repeats in the middle;
- ``mixed_dtype``: both are contiguous and the target has another dtype, bfloat16 where the
  prediction has float32 or float64, float32 where it has 16 bits.

A loss whose target is one row keeps it: sliced from a row that is one longer, contiguous beside a
transposed prediction, and of the other dtype; in ``broadcast_middle`` its target is (B, 1, N/k) as
that of every loss.
"""

from __future__ import annotations

import math

from losscli.cases.axes import BROADCAST_MIDDLE, SLICED, TRANSPOSED, Layout
from losscli.losses import Shape


def impossible(size: Shape, layout: Layout) -> str:
    """Say why a size cannot have a layout; empty if it can."""
    if layout == SLICED and not size:
        return f"{layout} needs a dimension"
    if layout in (TRANSPOSED, BROADCAST_MIDDLE) and len(size) < 2:
        return f"{layout} needs two dimensions"
    if layout == BROADCAST_MIDDLE and _divisor(size[-1]) == 1:
        return f"{layout} needs a last dimension with divisors, {size[-1]} has none"
    return ""


def input_shape(size: Shape, layout: Layout) -> Shape:
    """Return the shape of the prediction."""
    if layout != BROADCAST_MIDDLE or impossible(size, layout):
        return size
    divisor = _divisor(size[-1])
    return (*size[:-1], divisor, size[-1] // divisor)


def target_shape(size: Shape, layout: Layout, usual: Shape) -> Shape:
    """Return the shape of the target; ``usual`` is that of a contiguous one."""
    if layout != BROADCAST_MIDDLE or impossible(size, layout):
        return usual
    return (*size[:-1], 1, size[-1] // _divisor(size[-1]))


def size_of(shape: Shape, layout: Layout) -> Shape:
    """Return the size that a config names, from the shape of the prediction."""
    if layout != BROADCAST_MIDDLE or len(shape) < 3:
        return shape
    return (*shape[:-2], shape[-2] * shape[-1])


def stored_elements(shape: Shape, layout: Layout) -> int:
    """Return how many elements the tensor has that an operand of this shape is a view of."""
    if layout != SLICED or not shape:
        return math.prod(shape)
    return math.prod(shape[:-1]) * (shape[-1] + 1)


def _divisor(extent: int) -> int:
    """Return the largest divisor up to the square root."""
    return next(k for k in range(max(math.isqrt(extent), 1), 0, -1) if extent % k == 0)
