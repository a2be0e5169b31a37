"""Reasons for results that were skipped or failed: a code for programs and a text for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Code = Literal[
    "",
    "not_applicable",
    "layout",
    "no_gpu",
    "no_room",
    "out_of_memory",
    "device_broken",
    "throttled",
    "raised",
    "overwrote",
    "left_behind",
    "wrong",
    "wrong_later",
    "no_worse_than_torch",
    "broke_device",
    "process_died",
]
"""Why a result is not one to count on; empty where it is.

Skipped: ``not_applicable`` the implementation or the check has nothing of its own for the case,
``layout`` the size cannot have the layout, ``no_gpu`` it takes one, ``no_room`` it was planned to
take more memory than is free, ``out_of_memory`` it took more, ``device_broken`` somebody broke the
device before, ``throttled`` no sample was left. Failed: ``raised`` an exception, ``overwrote`` an
operand, ``left_behind`` a flag or the like that it changed for all that comes after, ``wrong`` by
the oracle, ``wrong_later`` right at first, wrong while timed, ``broke_device`` for all that come
after, ``process_died`` the process that measured ended. Warned of: ``no_worse_than_torch`` wrong by
the oracle, as PyTorch's own formula is on the same inputs.
"""


@dataclass(frozen=True)
class Reason:
    """Why not."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text
