"""What a test is run for: on each run or by `make test-all`, one by one or in a loop."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.machinery import MACHINERY, ROW_MACHINERY

SLOW = pytest.mark.slow


def few(names: Iterable[str], kept: Container[str] = (*MACHINERY, *ROW_MACHINERY)) -> list[Any]:
    """Return losses as the parameters of a test that does not depend on the formula.

    Those of the machinery, in all their forms, are tested on each run, the others by
    `make test-all`.
    """
    return [
        pytest.param(name, marks=[] if re.sub("^(weighted|masked)_", "", name) in kept else [SLOW])
        for name in names
    ]


@contextmanager
def naming(*what: object) -> Iterator[None]:
    """Name in an error which turn of a loop it is of."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {', '.join(map(str, what))}")
        raise
