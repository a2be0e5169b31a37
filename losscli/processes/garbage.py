"""Runs code without Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Switch the collector off, and afterwards on again if it was on.

    The collector would run within a sample, it takes half the time of reading a million values, all
    of which are still needed, and a CUDA graph that it frees in the middle of a capture invalidates
    that capture.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
