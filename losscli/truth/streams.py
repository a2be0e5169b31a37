"""Several streams of random numbers per seed, all distinct from other seeds'."""

from typing import Literal, get_args

import torch

Stream = Literal[
    "input",
    "target",
    "grad_output",
    "curvature",
    "direction",
    "third operand",
    "fourth operand",
    "fifth operand",
    "sixth operand",
    "seventh operand",
]
STREAMS: tuple[Stream, ...] = get_args(Stream)
OTHERS: tuple[Stream, ...] = ("target", *STREAMS[5:])
"""The streams of the other operands, in order."""
_MOST_STREAMS = 16
"""Fixed, so that a new stream does not change others' numbers."""


def make_generator(seed: int, stream: Stream, device: str = "cpu") -> torch.Generator:
    """Return the generator of one stream of a seed."""
    number = (_MOST_STREAMS * seed + STREAMS.index(stream)) % 2**64
    return torch.Generator(device).manual_seed(number)
