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
    "does_not_build",
    "hangs",
    "left_process",
    "forged",
    "flooded_output",
    "memory_limit",
    "clock_disagrees",
]
"""Why a result is skipped, failed or a warning; empty for a good result.

Skipped: ``not_applicable`` the implementation or the check does not apply to the case, ``layout``
the size cannot have the layout, ``no_gpu`` a GPU is needed, ``no_room`` the plan needs more memory
than is free, ``out_of_memory`` the memory ran out, ``device_broken`` an earlier call broke the
device, ``throttled`` every sample was discarded. Failed: ``raised`` the implementation raised an
exception, ``overwrote`` it overwrote an operand, ``left_behind`` it changed a flag or other state
of the process, ``wrong`` it is wrong by the oracle, ``wrong_later`` it was correct before timing
and wrong while timed, ``broke_device`` it broke the device, ``process_died`` its process or the one
that measured it ended; of a file, ``does_not_build`` it cannot be imported, ``hangs`` it did not
answer in time, ``left_process`` a process that it has started goes on, ``forged`` it wrote to the
judge's channel, ``flooded_output`` it wrote too much, ``memory_limit`` it took more memory than it
may, ``clock_disagrees`` its time is not what the judge's clock says. Warning:
``no_worse_than_torch`` it is wrong by the oracle, as PyTorch's own formula is on the same inputs;
of a bench that it is PyTorch's own, wrong in single elements and right as a whole.
"""


@dataclass(frozen=True)
class Reason:
    """A reason."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text
