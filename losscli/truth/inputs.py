"""The inputs of a case, deterministic in the seed.

Values are drawn block by block in float32 (float64 for float64) and rounded to the case's dtype,
without full-size temporaries. Each operand and grad_output has its own stream, and streams of
different seeds differ. PyTorch's generators give other values on a GPU.

Distributions (``scale`` multiplies every prediction, except for ``boundary``):

- ``uniform``: predictions and targets in [0, 1);
- ``normal``: both standard normal;
- ``heavy_tailed``: both Student's t with 2 degrees of freedom, clipped at +-100 so that squared
  differences are finite in float16;
- ``boundary``: of five predictions, one is exactly at a non-differentiable point, one just below,
  one just above and two near it; targets are multiples of 1/16, so that the point is exact in every
  dtype that holds it;
- ``impulse``: zeros, and every 997th value large.

Boundary logits are multiples of 1/16, so that classes tie. Class indices are uniform; every 997th
row from the 32nd is ignored if the loss can ignore rows. Several indices of a row are equally
spaced from a first one. A mask keeps the first row and three of four others.

Values lie in each operand's domain (losscli/losses/domain.py); every 101st value is an end of it,
alternating. Targets of -1 and 1 are equally likely.

Operands have the case's memory layout (losscli/cases/layouts.py). Views hold the same values as
contiguous operands; memory outside a view is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from losscli.cases.axes import SLICED, TRANSPOSED
from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.implementations import Implementation
from losscli.implementations.local import Operands
from losscli.losses import ELEMENT, Domain, Operand
from losscli.losses.domain import CLASSES, DISTINCT_CLASSES, MASKS
from losscli.losses.rows.forms import ignored_index
from losscli.truth.blocks import blocks, part
from losscli.truth.model import make_model_inputs
from losscli.truth.streams import OTHERS, Stream, make_generator

LARGEST = 100.0
"""Bound of heavy tails and impulses."""
IMPULSE_EVERY = 997
"""A prime, so that impulses occur at every position of a vector and tile."""
ENDS_EVERY = 101
"""A prime, for the same reason."""
IGNORED_EVERY, FIRST_IGNORED = 997, 31
"""The distance between ignored rows, and the first: too few to affect times."""
KEPT_ROWS = 0.75
"""The fraction of rows that a mask keeps."""
NO_CLASS = -(2**31)
"""Fills memory next to class indices."""
BOUNDARY_GRID = 16
"""Boundary targets are multiples of 1/16: with a kink of a few bits, exact in bfloat16."""


def no_value(dtype: torch.dtype) -> float:
    """Return the filler for memory without values: NaN, or an invalid class."""
    return math.nan if dtype.is_floating_point else NO_CLASS


Draw = Callable[[tuple[int, ...], int], Tensor]
"""``(shape, offset of the first element) -> values``."""


def make_inputs(
    case: Case, reference: Implementation | None = None, *, labels: bool = False
) -> Operands:
    """Return the operands of a case by their names, on its device.

    Args:
        case: which case.
        reference: what computes the truth of a Model, and has its parameters.
        labels: round targets between 0 and 1 to either.
    """
    if isinstance(case, ModelCase):
        assert reference
        return make_model_inputs(case, reference)
    first, *others = case.spec.operands
    operands: Operands = {first.name: _empty_input(case)}
    for number, operand in enumerate(others):
        source = _Draws(case, OTHERS[number])
        draws: dict[Domain, Draw] = {
            CLASSES: source.classes_of(case.classes, ignored_index(case.params)),
            DISTINCT_CLASSES: source.distinct_classes_of(case.classes),
            MASKS: source.mask,
        }
        draw = draws.get(operand.domain) or source.of(
            operand.domain, case.distribution, operand.factor(case.shape)
        )
        operands[operand.name] = _fill(_empty_other(case, operand.name), draw)
        if labels and may_be_labels(operand):
            operands[operand.name].round_()
    source = _Draws(case, "input")
    if case.distribution == "boundary" and case.spec.unit == ELEMENT:
        _fill_boundary(case, operands, source)
    else:
        draw = source.of(first.domain, case.distribution, case.scale)
        _fill(operands[first.name], draw)
    return operands


def may_be_labels(operand: Operand) -> bool:
    """Tell whether an operand holds anything from 0 to 1, so that labels are a special case."""
    domain = operand.domain
    return (domain.low, domain.high) == (0.0, 1.0) and not domain.discrete


def make_grad_output(case: Case) -> Tensor:
    """Return a standard normal grad_output for an unreduced loss."""
    empty = torch.empty(
        case.unreduced_shape, dtype=getattr(torch, case.loss_dtype), device=case.device
    )
    return _fill(empty, _Draws(case, "incoming gradient").normal)


def _empty_input(case: Case) -> Tensor:
    dtype, shape = getattr(torch, case.dtype), next(iter(case.shapes.values()))
    if case.layout == SLICED:
        return _wider(shape, dtype, case.device)[..., :-1]
    if case.layout == TRANSPOSED:
        swapped = (*shape[:-2], shape[-1], shape[-2])
        return torch.empty(swapped, dtype=dtype, device=case.device).transpose(-1, -2)
    return torch.empty(shape, dtype=dtype, device=case.device)


def _empty_other(case: Case, name: str) -> Tensor:
    dtype, shape = getattr(torch, case.dtypes[name]), case.shapes[name]
    if case.layout == SLICED and shape:
        return _wider(shape, dtype, case.device)[..., 1:]
    return torch.empty(shape, dtype=dtype, device=case.device)


def _wider(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Allocate a tensor with one more element in the last dimension, with fillers at its ends."""
    wider = torch.empty((*shape[:-1], shape[-1] + 1), dtype=dtype, device=device)
    wider[..., 0] = wider[..., -1] = no_value(dtype)
    return wider


class _Draws:
    """One stream of a seed, and its distributions."""

    def __init__(self, case: Case, stream: Stream) -> None:
        self.device = torch.device(case.device)
        self.dtype = torch.float64 if case.dtype == "float64" else torch.float32
        self.generator = make_generator(case.seed, stream, case.device)
        self.draws: dict[str, Draw] = {
            "uniform": self.uniform,
            "normal": self.normal,
            "heavy_tailed": self.heavy_tailed,
            "boundary": self.grid,
            "impulse": self.impulse,
        }

    def of(self, domain: Domain, distribution: str, scale: float = 1.0) -> Draw:
        """Return draws of a scaled distribution, mapped to a domain."""
        draw = self.uniform if domain.always_uniform else self.draws[distribution]

        def drawn(shape: tuple[int, ...], offset: int) -> Tensor:
            values = draw(shape, offset)
            values = domain.of_draws(values if domain.always_uniform else values.mul_(scale))
            for number, end in enumerate(domain.ends):
                at_end = self.numbers(shape, offset) % ENDS_EVERY == number
                values = values.masked_fill(at_end, end)
            return values

        return drawn

    def classes_of(self, count: int, ignored: int | None) -> Draw:
        """Return draws of class indices, some of them ignored."""

        def drawn(shape: tuple[int, ...], offset: int) -> Tensor:
            values = torch.randint(
                count, shape, generator=self.generator, device=self.device, dtype=torch.int64
            )
            if ignored is None:
                return values
            ignored_here = self.numbers(shape, offset) % IGNORED_EVERY == FIRST_IGNORED
            return values.masked_fill(ignored_here, ignored)

        return drawn

    def distinct_classes_of(self, count: int) -> Draw:
        """Return draws of distinct, equally spaced class indices per row."""

        def drawn(shape: tuple[int, ...], offset: int) -> Tensor:
            own = (2, *shape[:-1], 1)
            first, step = torch.rand(own, generator=self.generator, device=self.device).double()
            place = torch.arange(shape[-1], device=self.device)
            step = (step * (count // shape[-1])).long() + 1
            classes: Tensor = ((first * count).long() + place * step) % count
            return classes

        return drawn

    def mask(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw a mask of three of four rows, and always the first, so that no mean is NaN."""
        return (self.uniform(shape, offset) < KEPT_ROWS) | (self.numbers(shape, offset) == 0)

    def uniform(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw from [0, 1)."""
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def normal(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw standard normal values."""
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def heavy_tailed(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw Student's t with 2 degrees of freedom: a normal over the root of an exponential."""
        values = self.normal(shape, offset)
        width = torch.empty_like(values).exponential_(generator=self.generator).sqrt_()
        return values.div_(width).clamp_(-LARGEST, LARGEST)

    def grid(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw multiples of 1/16 in [-1, 1)."""
        return self.uniform(shape, offset).mul_(2 * BOUNDARY_GRID).floor_() / BOUNDARY_GRID - 1

    def impulse(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw zeros with a large value at every 997th place, starting at the first."""
        values = self.normal(shape, offset).mul_(LARGEST / 4).clamp_(-LARGEST, LARGEST)
        return values.masked_fill_(self.numbers(shape, offset) % IMPULSE_EVERY != 0, 0.0)

    def numbers(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Return each element's position in the whole tensor."""
        count = math.prod(shape)
        return torch.arange(offset, offset + count, device=self.device).view(shape)


def _fill(tensor: Tensor, draw: Draw) -> Tensor:
    """Fill a tensor block by block, in element order regardless of strides."""
    offset = 0
    for block in blocks(tensor.shape):
        view = tensor[block]
        view.copy_(draw(tuple(view.shape), offset))
        offset += view.numel()
    return tensor


def _fill_boundary(case: Case, operands: Operands, source: _Draws) -> None:
    """Place predictions at, next to and around non-differentiable points.

    The branch coordinate is affine in the prediction, ``slope * x + intercept``, and solved for
    ``x``. A smooth loss is probed at 0.
    """
    tensor, *others = operands.values()
    kinks = torch.tensor(
        case.spec.kinks(case.params) or (0.0,), dtype=torch.float64, device=tensor.device
    )
    offset = 0
    for block in blocks(case.shape):
        view = tensor[block]
        shape = tuple(view.shape)
        number = source.numbers(shape, offset)
        kind = number % 5
        coordinate = kinks[number // 5 % len(kinks)]
        around = source.normal(shape, offset).double()
        coordinate = torch.where(kind < 3, coordinate, coordinate + around)

        beside = [part(other, block).double() for other in others]
        x = case.spec.input_at(coordinate, *beside).to(tensor.dtype).double()
        step = torch.finfo(tensor.dtype).eps * x.abs().clamp_(min=1.0)
        x += step * ((kind == 2).double() - (kind == 1).double())
        view.copy_(case.spec.operands[0].domain.inside(x))
        offset += view.numel()
