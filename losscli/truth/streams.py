"""Several streams of random numbers per seed, all distinct from other seeds'."""

from __future__ import annotations

from typing import Literal, get_args

import torch

Stream = Literal[
    "input",
    "target",
    "incoming gradient",
    "curvature",
    "direction",
    "third operand",
    "fourth operand",
    "fifth operand",
    "sixth operand",
    "seventh operand",
]
"""The use of a stream's numbers."""
STREAMS: tuple[Stream, ...] = get_args(Stream)
OTHERS: tuple[Stream, ...] = ("target", *STREAMS[5:])
"""The streams of the operands after the prediction, in their order."""
_MOST_STREAMS = 16
"""A fixed number of streams, so that a new stream does not change the numbers of the others."""


def make_generator(seed: int, stream: Stream, device: str = "cpu") -> torch.Generator:
    """Return the generator of one stream of a seed."""
    number = (_MOST_STREAMS * seed + STREAMS.index(stream)) % 2**64
    return torch.Generator(device).manual_seed(number)
