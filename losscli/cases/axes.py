"""The values of each axis of a run (dtypes, passes, layouts, ...).

Losses, implementations and reductions have their own registries.
"""

from typing import Literal, get_args

DType = Literal["float32", "float64", "float16", "bfloat16"]
DTYPES: tuple[DType, ...] = get_args(DType)
PassName = Literal["forward", "forward_backward"]
PASSES: tuple[PassName, ...] = get_args(PassName)
FORWARD, FORWARD_BACKWARD = PASSES
Distribution = Literal["uniform", "normal", "heavy_tailed", "boundary", "impulse"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
Cache = Literal["cold", "warm"]
"""The state of caches before each sample."""
CACHES: tuple[Cache, ...] = get_args(Cache)
COLD, WARM = CACHES
Mode = Literal["device", "graph", "host"]
"""How calls are made and timed."""
MODES: tuple[Mode, ...] = get_args(Mode)
DEVICE, GRAPH, HOST = MODES
Layout = Literal["contiguous", "sliced", "transposed", "broadcast_middle", "mixed_dtype"]
"""How operands lie in memory; see losscli/cases/layouts.py."""
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
CONTIGUOUS, SLICED, TRANSPOSED, BROADCAST_MIDDLE, MIXED_DTYPE = LAYOUTS
CHANGING = "changing"
"""A grad_output that changes in every call."""
GradOutput = float | str
"""A finite number, or ``CHANGING``."""
