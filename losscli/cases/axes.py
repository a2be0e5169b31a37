"""The values of each axis of a run (dtypes, passes, layouts, ...).

Losses, implementations and reductions have their own registries.
"""

from typing import Any, Literal, NoReturn, get_args

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


class Parameters(dict[str, float]):
    """A loss's parameters: a hashable dict whose values stay."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the parameters of a case cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Parameters, (dict(self),)
