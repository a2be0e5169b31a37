"""Collects the errors of a config, so that all of them are told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from losscli.errors import ConfigError, ConfigErrors

T = TypeVar("T")
S = TypeVar("S")


class Problems:
    """The errors so far."""

    def __init__(self) -> None:
        self._errors: dict[str, ConfigError] = {}

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Keep the errors that are raised inside; one that several tables share counts once."""
        try:
            yield
        except ConfigErrors as several:
            self._errors |= {str(error): error for error in several.errors}
        except ConfigError as error:
            self._errors[str(error)] = error

    def raise_any(self) -> None:
        """Raise the errors, if there are any: one as it is, several together."""
        errors = tuple(self._errors.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ConfigErrors(errors)


def each(items: Iterable[S], read: Callable[[S], T]) -> list[T]:
    """Read every item; raise the errors of all of them together."""
    problems, found = Problems(), []
    for item in items:
        with problems.caught():
            found.append(read(item))
    problems.raise_any()
    return found
