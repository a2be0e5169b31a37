"""What a test is run for: on each run or by `make test-all`, one by one or in a loop."""

import itertools
import re
from collections.abc import Container, Iterable, Iterator, Mapping
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


def titled(texts: Mapping[str, str]) -> str:
    """Return several texts as one golden file, each below its title."""
    return "".join(f"=== {title} ===\n{text.rstrip()}\n\n" for title, text in texts.items())


def square(*axes: Iterable[Any]) -> list[Any]:
    """Return all combinations as the parameters of a test, of which few are tested on each run.

    Those make a Latin square: each value of an axis meets each value of any other axis there.
    """
    tables = [list(axis) for axis in axes]
    every = min(map(len, tables))
    return [
        pytest.param(
            *(value for _, value in chosen),
            marks=[] if sum(place for place, _ in chosen) % every == 0 else [SLOW],
        )
        for chosen in itertools.product(*map(enumerate, tables))
    ]
