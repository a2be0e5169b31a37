"""The contents of the operands during timing: they change, so that no cached result is right.

Whoever remembers a result by the address of its operands, or by the object, is fast and wrong. So
the prediction is multiplied in place before each batch of samples, and divided again before the
next; losses and gradients are judged by the oracle of what it held at the time. Before each sample
one element is written with what it holds, so that to PyTorch the prediction counts as changed.
Neither is timed, and neither takes memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.truth.gate import Gate

DOUBLED = -2.0
"""Changes every loss and gradient, and is undone exactly."""
TURNED = -1.0
"""The same for values that are too large to be doubled."""
LARGEST_DOUBLED = 64.0
"""Twice that and 64 more, squared, is finite in float16."""


class Contents:
    """The prediction and target of a case, and what is right for what they hold."""

    def __init__(
        self, case: Case, input: Tensor, target: Tensor, loosened: float | None = None
    ) -> None:
        """Take operands that ask for no gradient.

        ``loosened``: ULP that the config grants this case by name.
        """
        self.input, self.target = input, target
        self.case, self.loosened = case, loosened
        self.changed = False
        self._gates: dict[bool, Gate] = {}
        largest = max(abs(x.item()) for x in torch.aminmax(input)) if input.numel() else 0.0
        self._first = input[(slice(1),) * input.dim()]
        self._factor = DOUBLED if largest <= LARGEST_DOUBLED else TURNED

    @property
    def gate(self) -> Gate:
        """The judge of what is computed from the present contents."""
        if self.changed not in self._gates:
            self._gates[self.changed] = Gate(self.case, self.input, self.target, self.loosened)
        return self._gates[self.changed]

    def change(self) -> None:
        """Put the other contents in place of the present ones.

        What a CPU's cache has yet to write back would be written during the next sample: reading
        all once more has it written now. A GPU's cache is evicted before each sample.
        """
        self.input.mul_(1 / self._factor if self.changed else self._factor)
        if self.input.device.type == "cpu":
            self.input.sum()
        self.changed = not self.changed

    def touch(self) -> None:
        """Write one element with what it holds."""
        self._first.mul_(1)
