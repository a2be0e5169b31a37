"""Groups items by a key, and values of pairs by the pairs' keys."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items of each key, keeping the order of both."""
    return collected((key(item), item) for item in items)


def collected(pairs: Iterable[tuple[Key, Item]]) -> dict[Key, list[Item]]:
    """Return the values of each key, keeping the order of both."""
    found: dict[Key, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found
