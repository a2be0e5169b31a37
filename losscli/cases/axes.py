"""The values of each axis of a run (dtypes, passes, layouts, ...).

Losses, implementations and reductions have their own registries.
"""

from __future__ import annotations

from typing import Literal, get_args

DType = Literal["float32", "float64", "float16", "bfloat16"]
DTYPES: tuple[DType, ...] = get_args(DType)
PassName = Literal["forward", "forward_backward"]
PASSES: tuple[PassName, ...] = get_args(PassName)
FORWARD, FORWARD_BACKWARD = PASSES
Distribution = Literal["uniform", "normal", "heavy_tailed", "boundary", "impulse"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
Cache = Literal["cold", "warm"]
"""The state of the caches before each sample."""
CACHES: tuple[Cache, ...] = get_args(Cache)
COLD, WARM = CACHES
Mode = Literal["device", "graph", "host"]
"""The way in which calls are made and timed."""
MODES: tuple[Mode, ...] = get_args(Mode)
DEVICE, GRAPH, HOST = MODES
Layout = Literal["contiguous", "sliced", "transposed", "broadcast_middle", "mixed_dtype"]
"""How the operands of a case lie in memory; losscli/cases/layouts.py says what each means."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
CONTIGUOUS, SLICED, TRANSPOSED, BROADCAST_MIDDLE, MIXED_DTYPE = LAYOUTS
CHANGING = "changing"
"""The incoming gradient that changes in every call."""
GradOutput = float | str
"""An incoming gradient: a finite number, or ``CHANGING``."""
