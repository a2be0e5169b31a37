"""What a test runs for: on each run, or with `make test-all`; as tests of their own, or in a loop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.machinery import MACHINERY, ROW_MACHINERY

SLOW = pytest.mark.slow


def few(losses: Iterable[str]) -> list[Any]:
    """Return losses as the parameters of a test that does not depend on the formula.

    Those of the machinery, in all their forms, are tested on each run, the others by
    `make test-all`.
    """
    machinery = {*MACHINERY, *ROW_MACHINERY}
    return [
        pytest.param(
            name, marks=[] if re.sub("^(weighted|masked)_", "", name) in machinery else [SLOW]
        )
        for name in losses
    ]


@contextmanager
def naming(*what: object) -> Iterator[None]:
    """Name in an error which turn of a loop it is of."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {', '.join(map(str, what))}")
        raise
