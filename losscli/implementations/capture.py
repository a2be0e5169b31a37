"""Capture of CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from losscli.garbage import without_garbage_collection

_broken: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed: PyTorch's allocator may go on asking them what they capture."""


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture calls in a graph, which is kept for ever if the capture fails."""
    try:
        with without_garbage_collection(), torch.cuda.graph(graph, stream=stream):
            yield
    except Exception:
        _broken.append(graph)
        raise
