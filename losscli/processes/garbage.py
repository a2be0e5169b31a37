"""Runs code without Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the collector, and restore it afterwards.

    It could run within a sample; it takes half the time of reading a million live values; and
    freeing a CUDA graph during a capture invalidates the capture.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
