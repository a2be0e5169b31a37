"""The implementations of losses; callers reach them through ``subject``."""

from __future__ import annotations

from losscli.implementations.builtin import (
    IMPLEMENTATIONS,
    STRATEGIES,
    check_implementation,
    find_implementation,
    libraries,
)
from losscli.implementations.implementation import (
    CUSTOM,
    Implementation,
    is_own,
    plan_of,
    reference_bytes,
)
from losscli.implementations.source import is_file

__all__ = [
    "CUSTOM",
    "IMPLEMENTATIONS",
    "STRATEGIES",
    "Implementation",
    "check_implementation",
    "find_implementation",
    "is_file",
    "is_own",
    "libraries",
    "plan_of",
    "reference_bytes",
]
