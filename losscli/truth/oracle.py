"""The oracle: the reference formula in float64 on the same input values, in blocks.

No whole tensor is copied to float64, except the gradient of a broadcast operand, a sum over blocks.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.implementations.builtin import TORCHS_OWN
from losscli.implementations.local import Operands
from losscli.implementations.subject import Subject, bind
from losscli.losses import ELEMENT, LOSS
from losscli.truth import tolerances
from losscli.truth.blocks import BLOCK_ELEMENTS, Block, block_elements, blocks, part
from losscli.truth.distances import Errors, Truth, truths_of
from losscli.truth.textbook import textbook
from losscli.truth.tolerances import ELEMENT_ULP, Outcome

Truths = Callable[[], Iterable[Truth]]
"""Computes the truth block by block."""
OwnErrors = Callable[[], Errors]
"""Measures the error of PyTorch's own formula on the same inputs."""


@dataclass(frozen=True)
class Oracle:
    """The truth of one case, and the tolerances, for elementwise losses; subclasses for others."""

    case: Case
    operands: Operands
    reference: Implementation | None = None
    """What computes the truth if no formula is known."""
    either_side: bool = False
    """Whether the derivatives of both sides are right at a kink, and all between them."""
    takes_expanded: ClassVar[bool] = True
    """Whether ordinary calls may have a grad_output of stride 0."""

    @property
    def prediction(self) -> Tensor:
        """The first operand."""
        return next(iter(self.operands.values()))

    @cached_property
    def shape(self) -> torch.Size:
        """The prediction's shape; for elementwise losses the broadcast shape."""
        return self.unreduced_shape if self.case.spec.unit == ELEMENT else self.prediction.shape

    @property
    def dtype(self) -> torch.dtype:
        """The loss's dtype: promoted, and for some losses at least float32."""
        return self.case.spec.dtype_of(self.operands)

    @property
    def unreduced_shape(self) -> torch.Size:
        """The shape of the unreduced loss."""
        shapes = [tuple(operand.shape) for operand in self.operands.values()]
        return torch.Size(self.case.spec.loss_shape(shapes))

    @property
    def units(self) -> torch.Size:
        """The shape of the units, along which blocks are cut."""
        return self.unreduced_shape

    def loss_shape(self) -> torch.Size:
        """The shape of the loss."""
        return self.unreduced_shape if self.case.reduction == "none" else torch.Size()

    @property
    def divisor(self) -> float:
        """The divisor of the summed loss."""
        return float(self.shape.numel()) if self.case.reduction == "mean" else 1.0

    def is_summed(self, name: str) -> bool:
        """Tell whether an operand's gradient is a sum over elements or rows."""
        if self.case.spec.unit == ELEMENT:
            return self.operands[name].shape != self.shape
        return any(each.name == name and each.shared for each in self.case.spec.operands)

    @property
    def device(self) -> torch.device:
        """The operands' device."""
        return self.prediction.device

    def value(self) -> Iterator[Truth]:
        """Yield the loss, block by block if unreduced."""
        if self.case.reduction == "none":
            yield from map(self._loss, self._blocks())
            return
        sums, magnitudes = list[float](), list[float]()
        for block in self._blocks():
            truth = self._loss(block)
            sums.append(exact_sum(truth.value))
            one_sign = truth.magnitude is None and bool((truth.value >= 0).all())
            magnitudes.append(sums[-1] if one_sign else exact_sum(truth.scale.abs()))
        totals = torch.tensor([_sum(sums), _sum(magnitudes)], dtype=torch.float64) / self.divisor
        yield Truth((), *totals.to(self.device))

    def gradients(self, names: Sequence[str], grad_output: Tensor) -> dict[str, Iterable[Truth]]:
        """Return operands' gradients, block by block; grad_output has the loss's shape."""
        found = dict[str, Iterable[Truth]]()
        for name in names:
            truths = self._gradient(name, grad_output)
            found[name] = self._summed(name, truths) if self.is_summed(name) else truths
        return found

    def gradient(self, name: str, grad_output: Tensor) -> Iterable[Truth]:
        """Return one of :meth:`gradients`."""
        return self.gradients((name,), grad_output)[name]

    def _summed(self, name: str, truths: Iterable[Truth]) -> Iterator[Truth]:
        operand = self.operands[name]
        value = torch.zeros(operand.shape, dtype=torch.float64, device=operand.device)
        magnitude, rounding = torch.zeros_like(value), torch.zeros_like(value)
        for truth in truths:
            found = (truth.value, truth.scale.abs(), truth.rounding)
            for whole, terms in zip((value, magnitude, rounding), found, strict=True):
                if terms is not None:
                    own = part(whole, truth.block)
                    own += terms.sum_to_size(own.shape)
        for truth in truths_of(value, magnitude):
            yield replace(truth, rounding=rounding[truth.block])

    @property
    def keeps_truths(self) -> bool:
        """Whether truths are kept for the next implementation: small ones are."""
        return self.shape.numel() <= 2 * BLOCK_ELEMENTS

    @property
    def keeps_formulas(self) -> bool:
        """Whether the results of PyTorch's own formulas are kept."""
        return self.keeps_truths

    def formulas(self, *, third_party: bool) -> list[Subject]:
        """Return PyTorch's own formulas, for a third-party kernel also textbook ones."""
        case = self.case.whole
        able = [each for each in TORCHS_OWN if not each.unavailable(case)]
        return [bind(each, case) for each in able + (textbook(case) if third_party else [])]

    def accepted(self, truths: Truths, loss: Tensor) -> Truths:
        """Return the truths by which a loss is judged."""
        return truths

    def granted(self, loosened: float | None) -> float | None:
        """Return the larger tolerance of the config and the loss, in ULP."""
        own = self.case.spec.tolerance
        given = [loosened, own.factor * ELEMENT_ULP if own else None]
        return max((ulp for ulp in given if ulp is not None), default=None)

    def judge(self, part: str, errors: Errors, own: OwnErrors, granted: float | None) -> Outcome:
        """Judge the errors of the loss or of an operand's gradient."""
        if part != LOSS and self.is_summed(part):
            return self.judge_sums(errors, self.operands[part].dtype, granted)
        if part != LOSS or self.case.reduction == "none":
            dtype = self.dtype if part == LOSS else self.operands[part].dtype
            return self.judge_units(errors, dtype, granted)
        # PyTorch's own error is worth a run only where it can change the outcome.
        reference = own() if errors.ulp > tolerances.VALUE_ULP else Errors()
        length = self.case.elements
        return tolerances.judge_value(errors, reference, self.dtype, granted, length=length)

    def judge_units(self, errors: Errors, dtype: torch.dtype, granted: float | None) -> Outcome:
        """Judge losses or gradient elements of single units."""
        return tolerances.judge_elements(errors, granted)

    def judge_sums(self, errors: Errors, dtype: torch.dtype, granted: float | None) -> Outcome:
        """Judge sums over units."""
        return tolerances.judge_sums(errors, dtype, granted)

    def judge_as_a_whole(self, outcome: Outcome, errors: Errors, truths: Truths) -> Outcome:
        """Judge a gradient that passes by its norm too."""
        return outcome

    def excuse_bar(self, dtype: torch.dtype) -> float:
        """Return the ULP up to which PyTorch's own result counts as right."""
        return ELEMENT_ULP

    def branch_counts(self) -> list[int]:
        """Count the elements of each branch; a kink belongs to the branch below it."""
        spec = self.case.spec
        kinks = torch.tensor(spec.kinks(self.case.params), dtype=torch.float64, device=self.device)
        counts = torch.zeros(len(kinks) + 1, dtype=torch.int64, device=self.device)
        for block in self._blocks():
            coordinate = spec.branch_coordinate(*self._read(block).values())
            sides = torch.bucketize(coordinate.flatten(), kinks)
            counts += torch.bincount(sides, minlength=len(counts))
        return counts.tolist()

    def _blocks(self) -> Iterator[Block]:
        return blocks(self.units, block_elements(self.device.type))

    def _loss(self, block: Block) -> Truth:
        values = self._read(block)
        return self._with_terms(LOSS, block, values, self._elements(values))

    def _gradient(self, name: str, grad_output: Tensor) -> Iterator[Truth]:
        """Yield an operand's gradient, or what its elements are sums of."""
        for block in self._blocks():
            incoming = self._incoming(block, grad_output)
            values = self._read(block)
            values[name].requires_grad_()
            with torch.enable_grad():
                losses = self._elements(values)
            (gradient,) = torch.autograd.grad(losses, values[name], incoming)
            truth = self._with_terms(name, block, values, gradient, incoming)
            if self.either_side and self.case.spec.kinks(self.case.params):
                truth = replace(truth, rounding=self._jump(name, values, gradient, incoming))
            yield truth

    def _jump(self, name: str, values: Operands, found: Tensor, incoming: Tensor) -> Tensor | None:
        """Return how far the derivatives beside a kink are from ``found``; None if none is near.

        Near is what roundings of the coordinate may put on the kink.
        """
        spec, eps = self.case.spec, torch.finfo(self.dtype).eps
        kinks = torch.tensor(spec.kinks(self.case.params), dtype=torch.float64, device=self.device)
        values = {each: own.detach() for each, own in values.items()}
        from_kinks = (spec.branch_coordinate(*values.values()).unsqueeze(-1) - kinks).abs()
        near = (from_kinks <= 2 * eps * kinks.abs()).any(-1)
        if not near.any():
            return None
        first, jump = spec.names[0], torch.zeros_like(found)
        step = 8 * eps * (values[first].abs() + kinks.abs().amax() + 1)
        for side in (step, -step):
            moved = values | {first: values[first] + side}
            moved[name].requires_grad_()
            with torch.enable_grad():
                losses = self._elements(moved)
            (own,) = torch.autograd.grad(losses, moved[name], incoming)
            jump = jump.maximum((own - found).abs())
        return torch.where(near, jump * (1 + 1e-5), 0.0)  # found at a small distance from the kink

    def _of_loss(self, block: Block) -> Block:
        """Return the place of a block's losses in the unreduced loss."""
        return block

    def _incoming(self, block: Block, grad_output: Tensor) -> Tensor:
        place = self._of_loss(block)
        incoming = part(grad_output.detach(), place).double() / self.divisor
        return incoming.expand([cut.stop - cut.start for cut in place])

    def _with_terms(
        self, part: str, block: Block, values: Operands, found: Tensor, by: Tensor | None = None
    ) -> Truth:
        """Return a block of the loss, or of a gradient for a grad_output ``by``."""
        times = 1.0 if by is None else by
        return Truth(block, found, tolerances.largest_terms(self.case, part, values, found, times))

    def _elements(self, values: Operands) -> Tensor:
        return tolerances.elements(self.case, values)

    def _read(self, block: Block) -> Operands:
        extent = [cut.stop - cut.start for cut in block]
        own = {name: part(each.detach(), block) for name, each in self.operands.items()}
        return {name: each.double().expand(extent) for name, each in own.items()}


def wide(operands: Operands) -> Operands:
    """Return floating operands in float64, and others as they are."""
    return {n: each.double() if each.is_floating_point() else each for n, each in operands.items()}


def exact_sum(elements: Tensor) -> float:
    """Sum a block with an error far below one rounding."""
    flat, group = elements.flatten(), 256  # summed on the device before the host sums exactly
    whole = len(flat) - len(flat) % group
    return _sum([*flat[:whole].view(-1, group).sum(1).tolist(), *flat[whole:].tolist()])


def _sum(terms: list[float]) -> float:
    """Sum exactly; infinities and NaN follow IEEE 754."""
    return math.fsum(terms) if all(map(math.isfinite, terms)) else sum(terms)
