"""What the axes of a run may be: dtypes, passes, layouts and so on, by their public names.

The losses and the implementations have registries of their own; so have the reductions.
"""

from __future__ import annotations

DTYPES = ("float32", "float64", "float16", "bfloat16")
FORWARD, FORWARD_BACKWARD = PASSES = ("forward", "forward_backward")
DISTRIBUTIONS = ("uniform", "normal", "heavy_tailed", "boundary", "impulse")
COLD, WARM = CACHES = ("cold", "warm")
DEVICE, GRAPH, HOST = MODES = ("device", "graph", "host")
CONTIGUOUS, SLICED, TRANSPOSED, BROADCAST_MIDDLE, MIXED_DTYPE = LAYOUTS = (
    *("contiguous", "sliced", "transposed", "broadcast_middle", "mixed_dtype"),
)
"""How the operands of a case lie in memory; losscli/layouts.py says what each means."""
CHANGING = "changing"
"""The incoming gradient that is another number in every call."""
GradOutput = float | str
"""An incoming gradient: a finite number, or ``CHANGING``."""
