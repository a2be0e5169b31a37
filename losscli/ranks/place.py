"""This process's place among the ranks, from torchrun's variables; without torch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from losscli.errors import UsageError

RANK, SIZE, LOCAL_RANK = "RANK", "WORLD_SIZE", "LOCAL_RANK"
VARIABLES = (RANK, SIZE, LOCAL_RANK, "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets for each process."""
TIMEOUT_VARIABLE = "LOSSCLI_RANKS_TIMEOUT"
ADVICE = "Start it with --ranks N, or by `torchrun --nproc-per-node N -m losscli ...`"


@dataclass(frozen=True)
class Place:
    """One of several ranks."""

    rank: int
    size: int
    local_rank: int
    """Its number on its machine, which selects its GPU."""

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """Return this process's place, if any; UsageError if torchrun's variables are invalid."""
        missing = [name for name in VARIABLES if not environ.get(name)]
        if len(missing) == len(VARIABLES):
            return None
        if missing:
            found = ", ".join(name for name in VARIABLES if name not in missing)
            raise UsageError(
                f"{found} of torchrun's variables are set, {', '.join(missing)} are not. {ADVICE}."
            )
        rank, size, local_rank = (_number(environ, name) for name in (RANK, SIZE, LOCAL_RANK))
        if rank >= size:
            raise UsageError(f"RANK must be below WORLD_SIZE, but is {rank} of {size}. {ADVICE}.")
        return cls(rank, size, local_rank)


def seconds_of_collectives() -> int:
    """Return how long a rank waits for the others; UsageError if the variable is invalid."""
    given = os.environ.get(TIMEOUT_VARIABLE) or "60"
    if not given.isdecimal() or int(given) == 0:
        raise UsageError(f"{TIMEOUT_VARIABLE} must be whole seconds, at least 1, but is '{given}'.")
    return int(given)


def _number(environ: Mapping[str, str], name: str) -> int:
    if not environ[name].isdecimal():
        raise UsageError(f"{name} must be a number, but is '{environ[name]}'. {ADVICE}.")
    return int(environ[name])


_taken: list[Place] = []


def take(place: Place) -> None:
    """Record that this process is a rank."""
    _taken[:] = [place]


def is_silent() -> bool:
    """Tell whether this process is a rank other than the first, which reports."""
    return any(place.rank for place in _taken)
