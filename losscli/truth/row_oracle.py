"""The oracle of row-wise losses: the reference in float64, in blocks of whole rows."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from losscli.implementations.local import Operands
from losscli.losses import RowSpec
from losscli.losses.formulas import widened
from losscli.truth import tolerances
from losscli.truth.blocks import Block, block_elements, blocks, whole
from losscli.truth.distances import Errors, Truth
from losscli.truth.oracle import Oracle, wide
from losscli.truth.tolerances import ELEMENT_ULP, Outcome, finite, largest_terms, lost_in_sum


@dataclass(frozen=True)
class RowOracle(Oracle):
    """The oracle of a row-wise loss."""

    @property
    def spec(self) -> RowSpec:
        """The loss."""
        spec = self.case.spec
        assert isinstance(spec, RowSpec)
        return spec

    @cached_property
    def units(self) -> torch.Size:
        return torch.Size(self.spec.rows_shape(tuple(self.shape)))

    @cached_property
    def divisor(self) -> float:
        if self.case.reduction != "mean":
            return 1.0
        if self.spec.counts is None:
            return float(self.units.numel())
        counts = (self._counts(self._read(block)) for block in self._blocks())
        return math.fsum(float(each.sum()) for each in counts)

    def granted(self, loosened: float | None) -> float | None:
        # Roundings in 16 bits are those of float32, which terms allow for.
        return loosened if self.case.item_bytes == 2 else super().granted(loosened)

    def judge_units(self, errors: Errors, dtype: torch.dtype, granted: float | None) -> Outcome:
        length = self.spec.terms_in_sum(tuple(self.shape))
        return tolerances.judge_rows(errors, dtype, length, granted, factor=self._factor)

    def judge_sums(self, errors: Errors, dtype: torch.dtype, granted: float | None) -> Outcome:
        if dtype.itemsize >= 4:  # PyTorch's operators add up row after row
            granted = max(granted or 0.0, ELEMENT_ULP + lost_in_sum(self.unreduced_shape.numel()))
        return tolerances.judge_sums(errors, dtype, granted)

    def excuse_bar(self, dtype: torch.dtype) -> float:
        return tolerances.ONCE_ROUNDED_ULP if dtype.itemsize == 2 else ELEMENT_ULP

    def _gradient(self, name: str, grad_output: Tensor) -> Iterator[Truth]:
        if self.is_summed(name):
            return self._gradient_of_shared(name, grad_output)
        return super()._gradient(name, grad_output)

    def _with_terms(
        self, part: str, block: Block, values: Operands, found: Tensor, by: Tensor | None = None
    ) -> Truth:
        if by is None:
            terms = largest_terms(self.case, part, values, found, self._share(self.dtype))
            return Truth(self._of_loss(block), found, terms)
        operand = self.operands[part]
        has_classes = operand.dim() == len(self.shape)
        times, share = self._by_element(by) if has_classes else by, self._share(operand.dtype)
        terms = largest_terms(self.case, part, values, found, times * share)
        undecided = self._undecided(part, values, by)
        if undecided is not None and terms is not None:  # a result is rounded where it lies
            terms = terms.fmax(found.abs() + undecided)
        return Truth(self._place(block, operand), found, terms, rounding=undecided)

    def _gradient_of_shared(self, name: str, grad_output: Tensor) -> Iterator[Truth]:
        """Yield each block's part of a shared operand's gradient, which may move the divisor.

        It is measured at the spec's terms, or at itself, assuming one sign.
        """
        operand = self.operands[name]
        place = whole(operand.shape)
        mean = mean_scale = 0.0
        if self.case.reduction == "mean" and self.spec.counts:
            of_mean = next(iter(self.value()))
            mean, mean_scale = float(of_mean.value), abs(float(of_mean.scale))
        for block in self._blocks():
            values = self._read(block)
            values[name].requires_grad_()
            incoming = self._incoming(block, grad_output)
            with torch.enable_grad():
                elements = self._elements(values)
                counts = self._counts(values) if mean else None
            (own,) = torch.autograd.grad(elements, values[name], incoming, retain_graph=True)
            terms = self.spec.terms
            found = terms.of(*values.values(), **self.case.params).get(name) if terms else None
            if found is None:
                found = torch.autograd.grad(elements, values[name], incoming.abs())[0]
            else:
                by = incoming if found.dim() == incoming.dim() else self._by_element(incoming)
                found = _summed(found.detach() * by, operand)
            yield Truth(place, own, finite(found.abs()))
            if counts is not None and counts.requires_grad:
                # Rows are counted before they are multiplied, as equal numbers all round alike.
                (rows,) = torch.autograd.grad(counts, values[name], torch.ones_like(counts))
                one = incoming.flatten()[:1].sum()  # the grad_output of a mean, if it has rows
                # If no row counts, the mean is NaN and moves nothing.
                moved, scale = (
                    torch.where(rows == 0, rows, by * one * rows) for by in (mean, mean_scale)
                )
                yield Truth(place, -moved, scale.abs())

    def _undecided(self, name: str, values: Operands, incoming: Tensor) -> Tensor | None:
        """Return a gradient's additional error where rounding decides a sign, or None."""
        if self.spec.undecided is None:
            return None
        dtype = widened(self.dtype)
        lost = ELEMENT_ULP + lost_in_sum(self.spec.terms_in_sum(tuple(self.shape)))
        with torch.no_grad():
            found = self.spec.undecided(*values.values(), dtype=dtype, ulp=lost, **self.case.params)
            # If no row counts, grad_output is NaN.
            return finite(found[name] * self._by_element(incoming).abs())

    def _share(self, dtype: torch.dtype) -> float:
        length = self.spec.terms_in_sum(tuple(self.shape))
        return tolerances.terms_share(dtype, length, self._factor)

    @property
    def _factor(self) -> float:
        return self.spec.tolerance.factor if self.spec.tolerance else 1.0

    def _blocks(self) -> Iterator[Block]:
        most = block_elements(self.device.type) // max(math.prod(self.shape[1:]), 1)
        for rows in blocks(self.units[:1], max(most, 1)):
            yield (*rows, *whole(self.units[1:]))

    def _place(self, block: Block, operand: Tensor) -> Block:
        return (*block[:1], *whole(operand.shape[len(block[:1]) :]))

    def _read(self, block: Block) -> Operands:
        values: Operands = {}
        for name, operand in self.operands.items():
            own = operand.detach()
            values[name] = own if self.is_summed(name) else own[self._place(block, operand)]
        return wide(values)

    def _elements(self, values: Operands) -> Tensor:
        with AccurateSums() if self.dtype == torch.float64 else nullcontext():
            return super()._elements(values)

    def _of_loss(self, block: Block) -> Block:
        return block if self.spec.values == 1 else (slice(0, self.spec.values), *block)

    def _by_element(self, incoming: Tensor) -> Tensor:
        dimension = self.spec.row_dimension(len(self.shape))
        return incoming.unsqueeze(dimension + (self.spec.values > 1))

    def _counts(self, values: Operands) -> Tensor:
        assert self.spec.counts
        return self.spec.counts(*values.values(), **self.case.params)


def _summed(terms: Tensor, shared: Tensor) -> Tensor:
    known = finite(terms.abs())  # next to infinity every result would pass
    by_class = known.movedim(min(terms.dim() - 1, 1), 0)
    return by_class.reshape(len(by_class), -1).sum(1).view(shared.shape)


class AccurateSums(TorchFunctionMode):
    """Replaces ``torch.log_softmax`` in formulas and their derivatives by pairwise sums.

    PyTorch's CPU kernel sums a row sequentially, and its backward loses 570 ULP over 50,257 equal
    grad_outputs, as of label smoothing. A float64 oracle must be right within the 4 ULP it grants.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called = log_softmax if func in (torch.log_softmax, Tensor.log_softmax) else func
        return called(*args, **(kwargs or {}))


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """Compute ``torch.log_softmax``."""
    found: Tensor = _LogSoftmax.apply(input, dim)  # type: ignore[no-untyped-call]
    return found


class _LogSoftmax(torch.autograd.Function):
    """PyTorch's formulas; cancelling terms use the same probability."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int) -> Tensor:
        below = input - input.amax(dim, keepdim=True)
        found = below - below.exp().sum(dim, keepdim=True).log()
        ctx.save_for_backward(found)
        ctx.dim = dim
        return found

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        (incoming,), (logarithm,) = grad_outputs, ctx.saved_tensors
        return incoming - logarithm.exp() * incoming.sum(ctx.dim, keepdim=True), None
