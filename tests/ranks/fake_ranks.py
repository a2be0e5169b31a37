"""Ranks that are threads of one process: each waits for the others where it gathers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from losscli.ranks.group import Group


class FakeRank(Group):
    """One of several ranks; a thread of its own calls it."""

    def __init__(self, rank: int, shared: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(shared)
        self._shared, self._barrier = shared, barrier
        self.steps: list[str] = []

    def gather(self, step: str, value: Any) -> list[Any]:
        self.steps.append(step)
        self._shared[self.rank] = value
        self._barrier.wait(timeout=10)
        values = list(self._shared)
        self._barrier.wait(timeout=10)
        return values

    def meet(self) -> None:
        self.gather("meets", None)

    def check(self) -> None:
        """Do nothing: there are no collectives of losses."""


def on_ranks(count: int, program: Callable[[FakeRank], Any]) -> list[Any]:
    """Run a program on each rank; return what each returns, or the exception that it raises."""
    shared: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(rank: int) -> Any:
        try:
            return program(FakeRank(rank, shared, barrier))
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))
