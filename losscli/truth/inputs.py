"""The inputs of a case, deterministic in the seed.

Values are drawn block by block in float32 (float64 for float64) and rounded to the case's dtype,
without full-size temporaries. Each operand and grad_output has its own stream, and streams of
different seeds differ. PyTorch's generators give other values on a GPU.

``scale`` multiplies every prediction, except in the distribution ``boundary``: of five predictions,
one is exactly at a non-differentiable point, one just below, one just above and two near it;
targets are multiples of 1/16, so that the point is exact in every dtype that holds it, and so are
logits, so that classes tie. :class:`_Draws` has the other distributions.

Values lie in each operand's domain (losscli/losses/domain.py); every 101st value is an end of it,
alternating. Operands have the case's memory layout (losscli/cases/layouts.py). Views hold the same
values as contiguous operands; memory outside a view is NaN.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from losscli.cases.axes import SLICED, TRANSPOSED
from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.implementations import Implementation
from losscli.implementations.local import Operands
from losscli.losses import ELEMENT, Domain
from losscli.losses.domain import CLASSES, DISTINCT_CLASSES, MASKS
from losscli.losses.rows.forms import ignored_index
from losscli.truth.blocks import blocks, part
from losscli.truth.generators import Stream, make_generator
from losscli.truth.model import make_model_inputs

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

    ``reference`` has the parameters of a Model. ``labels``: round targets between 0 and 1.
    """
    if isinstance(case, ModelCase):
        assert reference
        return make_model_inputs(case, reference)
    first, *others = case.spec.operands
    operands: Operands = {first.name: _empty(case, first.name)}
    for number, operand in enumerate(others, 1):
        source = _Draws(case, "target" if number == 1 else number)
        draw = source.of(operand.domain, operand.factor(case.shape))
        operands[operand.name] = _fill(_empty(case, operand.name), draw)
        if labels and operand.labels:
            operands[operand.name].round_()
    source = _Draws(case, "input")
    if case.distribution == "boundary" and case.spec.unit == ELEMENT:
        _fill_boundary(case, operands, source)
    else:
        _fill(operands[first.name], source.of(first.domain, case.scale))
    return operands


def make_grad_output(case: Case) -> Tensor:
    """Return a standard normal grad_output for an unreduced loss."""
    empty = torch.empty(
        case.unreduced_shape, dtype=getattr(torch, case.loss_dtype), device=case.device
    )
    return _fill(empty, _Draws(case, "grad_output").normal)


def _empty(case: Case, name: str) -> Tensor:
    """Allocate an operand in the case's layout; around a sliced one there is no value."""
    shape, is_prediction = case.shapes[name], name == case.spec.names[0]
    empty = partial(torch.empty, dtype=getattr(torch, case.dtypes[name]), device=case.device)
    if case.layout == SLICED and shape:
        wider: Tensor = empty((*shape[:-1], shape[-1] + 1))
        wider[..., 0] = wider[..., -1] = no_value(wider.dtype)
        return wider[..., :-1] if is_prediction else wider[..., 1:]
    if case.layout == TRANSPOSED and is_prediction:
        return empty((*shape[:-2], shape[-1], shape[-2])).transpose(-1, -2)
    return empty(shape)


class _Draws:
    def __init__(self, case: Case, stream: Stream | int) -> None:
        self.case, self.device = case, torch.device(case.device)
        self.dtype = torch.float64 if case.dtype == "float64" else torch.float32
        self.generator = make_generator(case.seed, stream, case.device)

    def of(self, domain: Domain, scale: float = 1.0) -> Draw:
        """Return draws of the case's distribution, scaled and mapped to a domain."""
        discrete = {CLASSES: self.classes, DISTINCT_CLASSES: self.distinct, MASKS: self.mask}
        if domain in discrete:
            return discrete[domain]
        name = "uniform" if domain.always_uniform else self.case.distribution
        draw: Draw = getattr(self, name)

        def drawn(shape: tuple[int, ...], offset: int) -> Tensor:
            values = draw(shape, offset)
            values = domain.of_draws(values if domain.always_uniform else values.mul_(scale))
            for number, end in enumerate(domain.ends):
                at_end = self.numbers(shape, offset) % ENDS_EVERY == number
                values = values.masked_fill(at_end, end)
            return values

        return drawn

    def classes(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw class indices; every 997th row from the 32nd is ignored where the loss ignores."""
        count, ignored = self.case.classes, ignored_index(self.case.params)
        values = torch.randint(count, shape, generator=self.generator, device=self.device)
        if ignored is None:
            return values
        ignored_here = self.numbers(shape, offset) % IGNORED_EVERY == FIRST_IGNORED
        return values.masked_fill(ignored_here, ignored)

    def distinct(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw distinct, equally spaced class indices per row."""
        count, own = self.case.classes, (2, *shape[:-1], 1)
        first, step = torch.rand(own, generator=self.generator, device=self.device).double()
        place = torch.arange(shape[-1], device=self.device)
        step = (step * (count // shape[-1])).long() + 1
        classes: Tensor = ((first * count).long() + place * step) % count
        return classes

    def mask(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw a mask of three of four rows, and always the first, so that no mean is NaN."""
        return (self.uniform(shape, offset) < KEPT_ROWS) | (self.numbers(shape, offset) == 0)

    def uniform(self, shape: tuple[int, ...], offset: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def normal(self, shape: tuple[int, ...], offset: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def heavy_tailed(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw Student's t with 2 degrees of freedom: a normal over the root of an exponential.

        It is clipped at 100, so that squared differences are finite in float16.
        """
        values = self.normal(shape, offset)
        width = torch.empty_like(values).exponential_(generator=self.generator).sqrt_()
        return values.div_(width).clamp_(-LARGEST, LARGEST)

    def boundary(self, shape: tuple[int, ...], offset: int) -> Tensor:
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
    offset = 0
    for block in blocks(tensor.shape):
        view = tensor[block]
        view.copy_(draw(tuple(view.shape), offset))
        offset += view.numel()
    return tensor


def _fill_boundary(case: Case, operands: Operands, source: _Draws) -> None:
    """Place predictions at, next to and around non-differentiable points; 0 of a smooth loss."""
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
