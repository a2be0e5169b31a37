"""Looks whether a GPU works and has its memory back, before and after a candidate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from losscli.machine.devices import is_broken
from losscli.units import format_bytes

SECONDS = 10.0
"""How long a GPU may take to recover."""
LOST_BYTES = 64 * 2**20
"""Less is what a driver keeps for itself."""
_POLL = 0.05


@dataclass(frozen=True)
class Canary:
    """What a GPU was like before a candidate."""

    device: str
    free_bytes: int

    @classmethod
    def of(cls, device: str) -> Canary:
        """Look at a device; a CPU needs none of it."""
        return cls(device, _free(device))

    def trouble(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> str:
        """Say what is wrong with the GPU after some seconds; empty if it is as it was."""
        if self.device == "cpu":
            return ""
        limit = clock() + SECONDS
        while (told := self._trouble(clock, sleep, limit)) and clock() < limit:
            sleep(_POLL)
        return told

    def _trouble(
        self, clock: Callable[[], float], sleep: Callable[[float], None], limit: float
    ) -> str:
        if is_broken(self.device):
            return f"{self.device} is broken for this process"
        with torch.cuda.device(self.device):
            done = torch.cuda.Event()
            torch.ones(2**20, device=self.device).sum()
            done.record()
        while not done.query():
            if clock() >= limit:
                return f"a kernel on {self.device} did not finish within {SECONDS:g} s"
            sleep(_POLL)
        lost = self.free_bytes - _free(self.device)
        if lost > LOST_BYTES:
            return f"{format_bytes(lost)} of the memory of {self.device} did not come back"
        return ""


def _free(device: str) -> int:
    """Return the bytes of a GPU that no process has."""
    if device == "cpu":
        return 0
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])
