"""Check whether a GPU works, and whether its memory is free again, before and after a candidate."""

import time

import torch

from losscli.judge.device_lock import is_alone
from losscli.machine.devices import is_broken
from losscli.units import format_bytes

SECONDS = 10.0
"""How long a GPU may take to recover, beyond the longest call of another candidate."""
LOST_BYTES = 256 * 2**20
"""Less than this is the driver's and this process's own."""
_POLL = 0.05


class Canary:
    """A GPU's state before a candidate."""

    def __init__(self, device: str, call_seconds: float) -> None:
        """Look at a device; ``call_seconds``: how long another candidate's call may take."""
        self.device, self.seconds = device, SECONDS + call_seconds
        self.free_bytes = _free(device) if device != "cpu" and is_alone(device) else None
        """None where other judges share the device."""

    def trouble(self) -> str:
        """Return what is wrong with the GPU after waiting for it; empty if nothing is."""
        if self.device == "cpu":
            return ""
        limit = time.monotonic() + self.seconds
        while (told := self._trouble(limit)) and time.monotonic() < limit:
            time.sleep(_POLL)
        return told

    def _trouble(self, limit: float) -> str:
        if is_broken(self.device):
            return f"{self.device} is unusable in this process"
        with torch.cuda.device(self.device):
            done = torch.cuda.Event()
            torch.ones(2**20, device=self.device).sum()
            done.record()
        while not done.query():
            if time.monotonic() >= limit:
                return f"a kernel on {self.device} did not finish within {self.seconds:g} s"
            time.sleep(_POLL)
        if self.free_bytes is None or not is_alone(self.device):
            return ""
        lost = self.free_bytes - _free(self.device)
        if lost > LOST_BYTES:
            return f"{format_bytes(lost)} of the memory of {self.device} did not come back"
        return ""


def _free(device: str) -> int:
    torch.ones(2**20, device=device).sum()  # loads CUDA's kernel, before the canary measures
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])
