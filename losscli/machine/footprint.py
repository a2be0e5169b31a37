"""The memory that this process holds on a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from resource import getpagesize

import torch

from losscli.machine.allocator import give_back

_GPU_BLOCK_BYTES = 512
"""The smallest block of PyTorch's allocator."""


@dataclass(frozen=True)
class Footprint:
    """The memory of a device, and the size of a significant change."""

    device: str
    operand_bytes: int
    """Bytes of the operands of the calls."""

    def settle(self) -> None:
        """Give the host's free memory back, so that what is kept from here on comes on top."""
        if self.device == "cpu":
            give_back()

    def used(self) -> int:
        """Return the bytes allocated on a GPU, or resident on the host."""
        if self.device != "cpu":
            return torch.cuda.memory_allocated(self.device)
        return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()

    def noise(self, calls: int) -> int:
        """Return insignificant growth: on a GPU, less than a block per call.

        On the host, where other threads allocate as well, a quarter of an operand per call.
        """
        least = self.operand_bytes // 4 if self.device == "cpu" else _GPU_BLOCK_BYTES - 1
        return calls * least
