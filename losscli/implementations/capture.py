"""Capture of CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_broken: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed: PyTorch's allocator may go on asking them what they capture."""


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep Python from collecting garbage: a graph that is freed in a capture invalidates it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture calls in a graph, which is kept for ever if the capture fails."""
    try:
        with without_collection(), torch.cuda.graph(graph, stream=stream):
            yield
    except Exception:
        _broken.append(graph)
        raise
