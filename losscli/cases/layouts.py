"""The memory layouts of operands and their shapes; without torch.

- ``contiguous``: both operands are contiguous;
- ``sliced``: both are views of tensors with one more element in the last dimension, ``p[..., :-1]``
  and ``t[..., 1:]``, as the shift of next-token losses makes them;
- ``transposed``: the prediction is transposed in its last two dimensions;
- ``broadcast_middle``: the last dimension N is folded into k x N/k, with the largest divisor k of N
  up to its square root, and the target has 1 instead of k: (B, k, N/k) against (B, 1, N/k);
- ``mixed_dtype``: the target has another dtype: bfloat16 for a prediction of float32 or float64,
  float32 for 16 bits.

A one-row target stays one, except in ``broadcast_middle``.
"""

import math

from losscli.cases.axes import BROADCAST_MIDDLE, SLICED, TRANSPOSED, Layout
from losscli.losses import Shape


def impossible(size: Shape, layout: Layout) -> str:
    """Return why a size cannot have a layout, or ``""``."""
    if layout == SLICED and not size:
        return f"{layout} needs a dimension"
    if layout in (TRANSPOSED, BROADCAST_MIDDLE) and len(size) < 2:
        return f"{layout} needs two dimensions"
    if layout == BROADCAST_MIDDLE and _divisor(size[-1]) == 1:
        return f"{layout} needs a last dimension with divisors, {size[-1]} has none"
    return ""


def shapes_of(size: Shape, layout: Layout, usual: Shape) -> tuple[Shape, Shape]:
    """Return prediction's and target's shapes; ``usual`` is a contiguous target's."""
    if layout != BROADCAST_MIDDLE or impossible(size, layout):
        return size, usual
    *rows, last = size
    divisor = _divisor(last)
    return (*rows, divisor, last // divisor), (*rows, 1, last // divisor)


def size_of(shape: Shape, layout: Layout) -> Shape:
    """Return the size that a config names."""
    if layout != BROADCAST_MIDDLE or len(shape) < 3:
        return shape
    return (*shape[:-2], shape[-2] * shape[-1])


def stored_elements(shape: Shape, layout: Layout) -> int:
    """Return the number of elements in an operand's storage."""
    if layout != SLICED or not shape:
        return math.prod(shape)
    return math.prod(shape[:-1]) * (shape[-1] + 1)


def _divisor(extent: int) -> int:
    return next(k for k in range(max(math.isqrt(extent), 1), 0, -1) if extent % k == 0)
