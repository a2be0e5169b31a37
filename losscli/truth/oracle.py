"""The oracle: the reference formula in float64 on the very same input values, in blocks.

The oracle reads the operands as they are (float16 values become float64 exactly), applies the
loss's ``reference`` block by block, and lets float64 autograd differentiate it. No float64 copy of
a whole tensor is made; only the gradient of an operand that is broadcast, which is a sum over
blocks, is kept whole, in that operand's own shape. For float64 operands the oracle is the same
formula in the same precision, rounded as float64 rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from losscli.cases import OPERANDS, Case, OperandName
from losscli.truth.blocks import Block, block_elements, blocks, part

_GROUP = 256
"""Elements that the device sums in float64 before the host sums exactly."""


@dataclass(frozen=True)
class Truth:
    """The correct value of a block of a result."""

    block: Block
    """The block's place in the shape of the result."""
    value: Tensor
    """float64."""
    magnitude: Tensor | None = None
    """Where terms of both signs are summed, the sum of their magnitudes: beside ``value`` it shows
    how much of them cancelled."""

    @property
    def scale(self) -> Tensor:
        """The scale of errors; its sign does not matter."""
        return self.value if self.magnitude is None else self.magnitude


@dataclass(frozen=True)
class Oracle:
    """The oracle of one case on one pair of operands."""

    case: Case
    input: Tensor
    target: Tensor

    @cached_property
    def shape(self) -> torch.Size:
        """The shape that both operands broadcast to.

        By views: torch.broadcast_shapes imports sympy, which takes a process more than a second.
        """
        return torch.Size(torch.broadcast_tensors(self.input, self.target)[0].shape)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the loss: the operands', promoted."""
        return torch.promote_types(self.input.dtype, self.target.dtype)

    def loss_shape(self) -> torch.Size:
        """The shape of the loss."""
        return self.shape if self.case.reduction == "none" else torch.Size()

    def operand(self, name: OperandName) -> Tensor:
        """Return an operand by its name."""
        return self.input if name == "input" else self.target

    def value(self) -> Iterator[Truth]:
        """Yield the loss: block by block without a reduction, else one scalar."""
        if self.case.reduction == "none":
            for block in self._blocks(self.shape):
                elements = self._elements(self._read("input", block), self._read("target", block))
                yield Truth(block, elements)
            return
        sums: list[float] = []
        magnitudes: list[float] = []
        for block in self._blocks(self.shape):
            elements = self._elements(self._read("input", block), self._read("target", block))
            sums.append(_exact_sum(elements))
            one_sign = elements.numel() == 0 or bool(elements.min() >= 0)
            magnitudes.append(sums[-1] if one_sign else _exact_sum(elements.abs()))
        divisor = float(self.shape.numel()) if self.case.reduction == "mean" else 1.0
        totals = torch.tensor([_sum(sums), _sum(magnitudes)], dtype=torch.float64) / divisor
        yield Truth((), *totals.to(self.input.device))

    def gradient(self, name: OperandName, grad_output: Tensor) -> Iterator[Truth]:
        """Yield the gradient of an operand, block by block, for an incoming gradient.

        Args:
            name: which operand.
            grad_output: of the shape of the loss.
        """
        operand = self.operand(name)
        if operand.shape == self.shape:
            for block in self._blocks(self.shape):
                yield Truth(block, self._gradient(name, block, grad_output))
            return
        value = torch.zeros(operand.shape, dtype=torch.float64, device=operand.device)
        magnitude = torch.zeros_like(value)
        for block in self._blocks(self.shape):
            gradient = self._gradient(name, block, grad_output)
            own = part(value, block)
            own += gradient.sum_to_size(own.shape)
            own = part(magnitude, block)
            own += gradient.abs().sum_to_size(own.shape)
        for block in self._blocks(operand.shape):
            yield Truth(block, value[block], magnitude[block])

    def branch_counts(self) -> list[int]:
        """Count the elements of each branch of the loss; those on a kink belong below it."""
        kinks = torch.tensor(
            self.case.spec.kinks(self.case.params), dtype=torch.float64, device=self.input.device
        )
        counts = torch.zeros(len(kinks) + 1, dtype=torch.int64, device=self.input.device)
        for block in self._blocks(self.shape):
            coordinate = self.case.spec.branch_coordinate(
                self._read("input", block), self._read("target", block)
            )
            sides = torch.bucketize(coordinate.flatten(), kinks)
            counts += torch.bincount(sides, minlength=len(counts))
        return counts.tolist()

    def _blocks(self, shape: torch.Size) -> Iterator[Block]:
        """Cut a shape into blocks that suit the device of the operands."""
        return blocks(shape, block_elements(self.input.device.type))

    def _gradient(self, name: OperandName, block: Block, grad_output: Tensor) -> Tensor:
        """Return the gradient of one operand in the broadcast shape of a block."""
        extent = [cut.stop - cut.start for cut in block]
        values = {each: self._read(each, block) for each in OPERANDS}
        values[name] = values[name].expand(extent).requires_grad_()
        with torch.enable_grad():
            elements = self._elements(values["input"], values["target"])
        incoming = part(grad_output, block).double()
        if self.case.reduction == "mean":
            incoming = incoming / max(self.shape.numel(), 1)
        return torch.autograd.grad(elements, values[name], incoming.expand(extent))[0]

    def _elements(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each element."""
        return self.case.spec.reference(input, target, reduction="none", **self.case.params)

    def _read(self, name: OperandName, block: Block) -> Tensor:
        """Return an operand's values for a block, in float64."""
        return part(self.operand(name).detach(), block).double()


def _exact_sum(elements: Tensor) -> float:
    """Sum a block with an error far below one rounding of the result."""
    flat = elements.flatten()
    whole = len(flat) - len(flat) % _GROUP
    groups = flat[:whole].view(-1, _GROUP).sum(1)
    return _sum([*groups.tolist(), *flat[whole:].tolist()])


def _sum(terms: list[float]) -> float:
    """Sum exactly; infinities and NaN follow IEEE 754."""
    return math.fsum(terms) if all(map(math.isfinite, terms)) else sum(terms)
