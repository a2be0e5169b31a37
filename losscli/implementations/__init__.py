"""The implementations of losses, and ``subject``, the only module that calls them."""

from __future__ import annotations

from losscli.implementations.builtin import IMPLEMENTATIONS, STRATEGIES, find_implementation
from losscli.implementations.implementation import Implementation, reference_bytes

__all__ = [
    "IMPLEMENTATIONS",
    "STRATEGIES",
    "Implementation",
    "find_implementation",
    "reference_bytes",
]
