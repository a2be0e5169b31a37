"""Several streams of random numbers per seed, all distinct from other seeds'."""

from typing import Literal, get_args

import torch

Stream = Literal["input", "target", "grad_output", "curvature", "direction"]
STREAMS: tuple[Stream, ...] = get_args(Stream)
_MOST_STREAMS = 16
"""Fixed, so that a new stream does not change others' numbers."""


def make_generator(seed: int, stream: Stream | int, device: str = "cpu") -> torch.Generator:
    """Return the generator of one stream of a seed; operands after the target have 2, 3, ..."""
    place = len(STREAMS) + stream - 2 if isinstance(stream, int) else STREAMS.index(stream)
    number = (_MOST_STREAMS * seed + place) % 2**64
    return torch.Generator(device).manual_seed(number)
