"""Streams of random numbers: several for each seed, all different from those of other seeds."""

from __future__ import annotations

from typing import Literal, get_args

import torch

Stream = Literal["input", "target", "incoming gradient", "curvature", "direction"]
"""What the numbers are for."""
STREAMS: tuple[Stream, ...] = get_args(Stream)
_MOST_STREAMS = 16
"""A fixed number, so that one more stream leaves the numbers of the others as they are. PyTorch's
generator of a CPU takes 32 bits: seeds below 2^28 share no stream."""


def make_generator(seed: int, stream: Stream, device: str = "cpu") -> torch.Generator:
    """Return a generator of the numbers of one stream of a seed."""
    number = (_MOST_STREAMS * seed + STREAMS.index(stream)) % 2**64
    return torch.Generator(device).manual_seed(number)
