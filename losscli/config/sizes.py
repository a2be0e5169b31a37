"""The grammar of sizes: ``1024x1024``, ``32K``, ``1K..32K*2``, ``pow2[10:30:5]``."""

import math
import re

from losscli.errors import UsageError
from losscli.losses import Shape

LARGEST_EXPONENT = 44
LARGEST = 2**LARGEST_EXPONENT
"""Most elements of one tensor; a larger size is a typing error."""
MOST_DIMENSIONS = 64
"""PyTorch's limit."""

_SUFFIXES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_EXTENT = re.compile(r"([0-9]{1,99})([KMG]?)", re.IGNORECASE)
_POW2 = re.compile(r"pow2\[([0-9]{1,3}):([0-9]{1,3})(?::([0-9]{1,3}))?\]")
_RANGE = re.compile(r"(?P<start>[^.*]+)\.\.(?P<stop>[^.*]+)\*(?P<factor>[0-9]{1,9})")


def parse_size(text: str) -> tuple[Shape, ...]:
    """Parse an entry of ``sizes`` or ``--size``, which may be several sizes."""
    text = text.strip()
    if match := _POW2.fullmatch(text):
        start, stop, step = (int(part or 1) for part in match.groups())
        return powers_of_two(start, stop, step)
    if match := _RANGE.fullmatch(text):
        start, stop = _extent(match["start"], text), _extent(match["stop"], text)
        return _geometric(start, stop, int(match["factor"]), text)
    shape = tuple(_extent(part, text) for part in re.split("[xX]", text))
    if len(shape) > MOST_DIMENSIONS:
        raise UsageError(f"a size has at most {MOST_DIMENSIONS} dimensions, not {len(shape)}.")
    return (_plausible(shape, text),)


def powers_of_two(start: int, stop: int, step: int = 1) -> tuple[Shape, ...]:
    """Return one-dimensional sizes 2^start, 2^(start+step), ... up to 2^stop."""
    text = f"pow2[{start}:{stop}:{step}]"
    if not 0 <= start <= stop <= LARGEST_EXPONENT or step < 1:
        said = f"'{text}' is not a range of sizes. Write pow2[START:STOP:STEP] with"
        raise UsageError(f"{said} 0 <= START <= STOP <= {LARGEST_EXPONENT} and STEP at least 1.")
    return tuple((2**exponent,) for exponent in range(start, stop + 1, step))


def _geometric(start: int, stop: int, factor: int, text: str) -> tuple[Shape, ...]:
    if not 1 <= start <= stop or factor < 2:
        form = "START at least 1, STOP no smaller and FACTOR at least 2, such as 1K..32K*2"
        raise UsageError(f"'{text}' is not a range of sizes. Write START..STOP*FACTOR with {form}.")
    shapes = []
    while start <= stop:
        shapes.append(_plausible((start,), text))
        start *= factor
    return tuple(shapes)


def _extent(part: str, text: str) -> int:
    if match := _EXTENT.fullmatch(part):
        return int(match[1]) * _SUFFIXES[match[2].upper()]
    if re.fullmatch("-[0-9]+[KMG]?", part):
        reason = "an extent cannot be negative"
    elif part:
        reason = f"'{part}' is not an extent"
    else:
        reason = "an extent is missing" if text else "it is empty"
    advice = "Write 1024x1024, 32K (32768), 1K..32K*2 or pow2[10:30:5]."
    raise UsageError(f"'{text}' is not a size: {reason}. {advice}")


def _plausible(shape: Shape, text: str) -> Shape:
    if math.prod(max(extent, 1) for extent in shape) > LARGEST:
        raise UsageError(f"'{text}' has more than 2^{LARGEST_EXPONENT} elements.")
    return shape
