"""Builds and describes the module of a ``Model`` or a candidate in a worker."""

from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from losscli.cases.model_case import Argument, Content, ModelCase
from losscli.implementations.definitions import Definition
from losscli.implementations.errors import SubjectError
from losscli.implementations.local import Operands

_SUM_ERROR = 0.02
"""How far from one a row of probabilities may sum, rounded to 16 bits."""


def make(module: ModuleType, definition: Definition, device: str, seed: int) -> Any:
    """Return a function, or an instance of a class made with a seed."""
    found: Any = getattr(module, definition.name)
    if definition.kind == "function":
        return found
    with torch.random.fork_rng([] if device == "cpu" else [torch.device(device)]):
        torch.manual_seed(seed)
        return found(*getattr(module, "get_init_inputs", list)()).to(device)


class BoundModel:
    """A file's module, called with a case's arguments, or copies of them, and parameters."""

    def __init__(
        self, module: ModuleType, definition: Definition, case: ModelCase, *, copies: bool
    ) -> None:
        self.case, self.copies = case, copies
        self.made = make(module, definition, case.device, case.made_with)
        if case.cast and isinstance(self.made, nn.Module):
            self.made = self.made.to(getattr(torch, case.cast))
        self.holds = not case.state
        """Whether its parameters are its own."""

    def __call__(self, *operands: Tensor) -> Tensor:
        """Return the result."""
        if self.copies:
            operands = tuple(each.clone() for each in operands)
        given = dict(zip(self.case.shapes, operands, strict=True))
        arguments = [a.plain if a.shape is None else given[a.name] for a in self.case.arguments]
        if self.holds:
            return cast(Tensor, self.made(*arguments))
        # A module may write to its buffers, and the operands are the judge's.
        state = {
            a.name: given[a.name] if a.differentiable else given[a.name].clone()
            for a in self.case.state
        }
        return cast(Tensor, functional_call(self.made, state, tuple(arguments)))

    def hold(self, operands: Operands) -> list[Tensor]:
        """Bind parameters and buffers permanently; return the parameters."""
        if self.case.state:
            self.made.load_state_dict({a.name: operands[a.name] for a in self.case.state})
            self.holds = True
        return [*self.made.parameters()] if isinstance(self.made, nn.Module) else []


def arguments_of(module: ModuleType) -> list[Argument]:
    """Describe the arguments from ``get_inputs``."""
    make_inputs: Any = getattr(module, "get_inputs", None)
    if make_inputs is None:
        raise SubjectError("has no get_inputs, which would say the shapes of its arguments")
    given = make_inputs()
    return [_described(each) for each in ([given] if isinstance(given, Tensor) else given)]


def _described(given: Any) -> Argument:
    if not isinstance(given, Tensor):
        if given is not None and not isinstance(given, bool | int | float | str):
            raise SubjectError(f"get_inputs gives a {type(given).__name__}, which cannot be drawn")
        return Argument(plain=given)
    dtype, shape = str(given.dtype).removeprefix("torch."), tuple(given.shape)
    if given.is_floating_point():
        return Argument(shape=shape, dtype=dtype, content=_content(given.detach()))
    if given.is_complex():
        raise SubjectError(f"get_inputs gives a tensor of {dtype}, which cannot be drawn")
    low, high = (int(given.min()), int(given.max())) if given.numel() else (0, 0)
    return Argument(shape=shape, dtype=dtype, low=low, high=high)


def _content(values: Tensor) -> Content:
    if not values.numel() or not bool(values.isfinite().all()):
        return "any"
    low, high = float(values.min()), float(values.max())
    if bool((values.abs() == 1).all()) and low < 0:
        return "signs"
    if bool(((values == 0) | (values == 1)).all()):
        return "bits"
    if values.dim() and values.shape[-1] > 1:
        if low >= 0 and _sums_to_one(values):
            return "probabilities"
        if high <= 0 and _sums_to_one(values.float().exp()):
            return "log_probabilities"
    if low >= 0:
        return "unit" if high <= 1 else "not_negative"
    return "any"


def _sums_to_one(rows: Tensor) -> bool:
    return bool(((rows.float().sum(-1) - 1).abs() < _SUM_ERROR).all())
