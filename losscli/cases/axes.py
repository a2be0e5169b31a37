"""The values of the axes of a run: dtypes, passes, layouts, ..."""

from typing import Any, Literal, NoReturn, get_args

DType = Literal["float32", "float64", "float16", "bfloat16"]
DTYPES: tuple[DType, ...] = get_args(DType)
PassName = Literal["forward", "forward_backward"]
PASSES: tuple[PassName, ...] = get_args(PassName)
FORWARD, FORWARD_BACKWARD = PASSES
Distribution = Literal["uniform", "normal", "heavy_tailed", "boundary", "impulse"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
Cache = Literal["cold", "warm"]
CACHES: tuple[Cache, ...] = get_args(Cache)
COLD, WARM = CACHES
Mode = Literal["device", "graph", "host"]
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
CHANGING_VALUES = (0.5, 1.0, 0.25, 2.0, 0.75, 1.5, 0.375, 1.25, 3.0, 0.625)
"""The cycle of grad_outputs for ``changing``: distinct, and exact in every dtype."""


def grad_output_values(grad_output: GradOutput) -> tuple[float, ...]:
    """Return the cycle of grad_outputs of successive calls."""
    return CHANGING_VALUES if isinstance(grad_output, str) else (grad_output,)


def format_grad_output(grad_output: GradOutput) -> str:
    """Return ``0.5`` or ``changing``."""
    return grad_output if isinstance(grad_output, str) else f"{grad_output:g}"


class Parameters(dict[str, float]):
    """A loss's parameters: a hashable dict."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the parameters of a case cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Parameters, (dict(self),)
