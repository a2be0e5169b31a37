"""The inputs of a case, deterministic in the seed.

Values are drawn block by block in float32 (float64 for float64) and rounded to the case's dtype.
Each operand and grad_output has its own stream of random numbers, and streams of different seeds
differ. PyTorch's generators give other values on a GPU.

``scale`` multiplies every prediction, except in the distribution ``boundary``: of five predictions,
one is exactly at a non-differentiable point, one just below, one just above and two near it;
targets are multiples of 1/16, so that the point is exact, and so are logits, so that classes tie.

Values lie in each operand's domain (losscli/losses/domain.py); every 101st value is an end of it,
alternating. Operands have the case's layout (losscli/cases/layouts.py) with the same values;
memory outside a view is NaN.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from losscli.cases.axes import SLICED, TRANSPOSED
from losscli.cases.case import Case
from losscli.cases.model_case import Argument, ModelCase
from losscli.cases.model_case import Draw as ModelDraw
from losscli.implementations import Implementation
from losscli.implementations.local import Operands
from losscli.implementations.sandbox.worker_requests import ModelState
from losscli.losses import ELEMENT, Domain
from losscli.losses.domain import CLASSES, DISTINCT_CLASSES, MASKS
from losscli.losses.rows.forms import ignored_index
from losscli.truth.blocks import blocks, part
from losscli.truth.model import Reference

Stream = Literal["input", "target", "grad_output", "curvature", "direction"]
STREAMS: tuple[Stream, ...] = get_args(Stream)
LARGEST = 100.0
"""Bound of heavy tails and impulses."""
IMPULSE_EVERY, ENDS_EVERY = 997, 101
"""Primes, so that both occur at every position of a vector and tile."""
NO_CLASS = -(2**31)
"""Fills memory next to class indices."""
Draw = Callable[[tuple[int, ...], int], Tensor]
"""``(shape, offset of the first element) -> values``."""


def make_generator(seed: int, stream: Stream | int, device: str = "cpu") -> torch.Generator:
    """Return the generator of a seed's stream; those of later operands are 2, 3, ..."""
    place = len(STREAMS) + stream - 2 if isinstance(stream, int) else STREAMS.index(stream)
    # 16 is fixed, so that a new stream does not change others' numbers.
    return torch.Generator(device).manual_seed((16 * seed + place) % 2**64)


def no_value(dtype: torch.dtype) -> float:
    """Return the filler for memory without values: NaN, or an invalid class."""
    return math.nan if dtype.is_floating_point else NO_CLASS


def make_inputs(
    case: Case, reference: Implementation | None = None, *, labels: bool = False
) -> Operands:
    """Return the operands of a case, on its device; ``labels``: round targets to 0 and 1."""
    if isinstance(case, ModelCase):
        assert reference
        return _model_inputs(case, reference)
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


def _model_inputs(case: ModelCase, reference: Implementation) -> Operands:
    generator = make_generator(case.seed, "input")
    state = Reference(case, reference).ask(ModelState(case.made_with))[0] if case.state else {}
    operands: Operands = {}
    for argument in case.tensors:
        own = state.get(argument.name)
        values = _drawn(argument, case.draw, generator) if own is None else own
        operands[argument.name] = values.to(case.device, getattr(torch, argument.dtype))
    return operands


def _drawn(argument: Argument, draw: ModelDraw, generator: torch.Generator) -> Tensor:
    shape = argument.shape or ()
    if not argument.is_floating:
        high = max(argument.high, argument.low) + 1
        return torch.randint(argument.low, high, shape, generator=generator)
    normal = torch.randn(shape, generator=generator)
    scaled = normal * 8 if draw == "large" else normal  # exponentials stay within float32
    match argument.content:
        case "signs":
            return torch.where(normal < 0, -1.0, 1.0)
        case "bits":
            return torch.where(normal < 0, 0.0, 1.0)
        case "probabilities":
            return scaled.softmax(-1).clamp_(min=1e-8)  # a formula may divide by them
        case "log_probabilities":
            return scaled.log_softmax(-1)
        case "unit":
            return torch.rand(shape, generator=generator) ** (4 if draw == "large" else 1)
        case "not_negative":
            return scaled.abs()
    return -normal.abs() if draw == "negative" else scaled


def unusual_draws(case: ModelCase) -> Iterator[ModelDraw]:
    """Yield the draws that differ from the usual one for a Model's arguments."""
    free = {a.content for a in case.arguments if a.is_floating}
    if free - {"signs", "bits"}:
        yield "large"
    if "any" in free:
        yield "negative"


def make_grad_output(case: Case) -> Tensor:
    """Return a standard normal grad_output for an unreduced loss."""
    dtype = getattr(torch, case.loss_dtype)
    empty = torch.empty(case.unreduced_shape, dtype=dtype, device=case.device)
    return _fill(empty, _Draws(case, "grad_output").normal)


def _empty(case: Case, name: str) -> Tensor:
    """Allocate an operand in the case's layout."""
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
        draw = getattr(self, "uniform" if domain.always_uniform else self.case.distribution)

        def drawn(shape: tuple[int, ...], offset: int) -> Tensor:
            values: Tensor = draw(shape, offset)
            values = domain.of_draws(values if domain.always_uniform else values.mul_(scale))
            for number, end in enumerate(domain.ends):
                at_end = self.numbers(shape, offset) % ENDS_EVERY == number
                values = values.masked_fill(at_end, end)
            return values

        return drawn

    def classes(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw class indices; ignore some rows if the loss can."""
        count, ignored = self.case.classes, ignored_index(self.case.params)
        values = torch.randint(count, shape, generator=self.generator, device=self.device)
        if ignored is None:
            return values
        ignored_here = self.numbers(shape, offset) % 997 == 31  # too few to affect times
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
        """Draw a mask of 3/4 of the rows; it keeps the first one, so that no mean is NaN."""
        return (self.uniform(shape, offset) < 0.75) | (self.numbers(shape, offset) == 0)

    def uniform(self, shape: tuple[int, ...], offset: int) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def normal(self, shape: tuple[int, ...], offset: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def heavy_tailed(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw Student's t with 2 degrees of freedom, clipped so that float16 holds squares."""
        values = self.normal(shape, offset)
        width = torch.empty_like(values).exponential_(generator=self.generator).sqrt_()
        return values.div_(width).clamp_(-LARGEST, LARGEST)

    def boundary(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Draw multiples of 1/16 in [-1, 1): with a kink of a few bits, exact in bfloat16."""
        return self.uniform(shape, offset).mul_(32).floor_() / 16 - 1

    def impulse(self, shape: tuple[int, ...], offset: int) -> Tensor:
        values = self.normal(shape, offset).mul_(LARGEST / 4).clamp_(-LARGEST, LARGEST)
        return values.masked_fill_(self.numbers(shape, offset) % IMPULSE_EVERY != 0, 0.0)

    def numbers(self, shape: tuple[int, ...], offset: int) -> Tensor:
        """Return each element's flat position in the whole tensor."""
        return torch.arange(offset, offset + math.prod(shape), device=self.device).view(shape)


def _fill(tensor: Tensor, draw: Draw) -> Tensor:
    offset = 0
    for block in blocks(tensor.shape):
        view = tensor[block]
        view.copy_(draw(tuple(view.shape), offset))
        offset += view.numel()
    return tensor


def _fill_boundary(case: Case, operands: Operands, source: _Draws) -> None:
    """Place predictions at, next to and around kinks; a smooth loss has one at 0."""
    tensor, *others = operands.values()
    met = case.spec.kinks(case.params) or (0.0,)
    kinks = torch.tensor(met, dtype=torch.float64, device=tensor.device)
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
