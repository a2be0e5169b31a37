"""Runs a module of any signature in a worker: a candidate's, or the ``Model`` it is judged against.

A module is made once for each dtype that it computes in: as the file makes it, or cast. What comes
out is one tensor, with gradients of the floating arguments and of the parameters.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from losscli.axes import DEVICE
from losscli.implementations.errors import SubjectError
from losscli.implementations.files import Definition
from losscli.implementations.local import plain
from losscli.implementations.sandbox.methods import (
    ArgumentFacts,
    ModuleAnswer,
    ModuleCall,
    ModuleSamples,
    Patch,
    ValueKind,
    WarmData,
)
from losscli.implementations.sandbox.timed import loop
from losscli.implementations.timer import Warm, make_timer, needs_eviction
from losscli.machine.allocations import measure_peak

_SUM_ERROR = 0.02
"""How far from one a row of probabilities may sum: 16-bit rows are rounded."""


class Modules:
    """What a file defines, made for each dtype that is asked for."""

    def __init__(self, module: ModuleType, definition: Definition, device: str) -> None:
        self.module, self.definition, self.device = module, definition, device
        self.made: dict[str, Any] = {}
        self.timed: TimedModule | None = None

    def make(self, dtype: str, seed: int) -> dict[str, Tensor]:
        """Make a module from a seed, cast to a dtype unless that is empty; return its state."""
        found: Any = getattr(self.module, self.definition.name)
        if self.definition.kind == "module":
            cuda = [] if self.device == "cpu" else [torch.device(self.device)]
            with torch.random.fork_rng(cuda):
                torch.manual_seed(seed)
                found = found(*getattr(self.module, "get_init_inputs", list)())
            found = found.to(self.device)
            found = found.to(getattr(torch, dtype)) if dtype else found
        self.made[dtype] = found
        return dict(found.state_dict()) if isinstance(found, nn.Module) else {}

    def load(self, dtype: str, state: dict[str, Tensor]) -> None:
        """Give a module the parameters and buffers of another."""
        if state:
            self.made[dtype].load_state_dict(state)

    def answer(self, call: ModuleCall) -> ModuleAnswer:
        """Return the result of a call, with its gradients where it gives an incoming gradient."""
        answer = self._answer(call, self._arguments(call))
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        return answer

    def _arguments(self, call: ModuleCall) -> list[Any]:
        """Return the arguments of a call; floating ones are leaves, in the dtype of the call."""
        given: list[Any] = []
        for argument in call.arguments:
            tensor = argument.tensor
            if tensor is None:
                given.append(argument.plain)
                continue
            leaf = tensor.detach()
            if leaf.is_floating_point():
                leaf = leaf.to(getattr(torch, call.dtype)) if call.dtype else leaf
                leaf.requires_grad_(call.grad_output is not None)
            given.append(leaf)
        return given

    def _answer(self, call: ModuleCall, given: list[Any]) -> ModuleAnswer:
        """Answer without waiting for a GPU."""
        module = self.made[call.dtype]
        if call.grad_output is None:
            with torch.no_grad():
                return ModuleAnswer(plain(module(*given)), {})
        wanted = {
            f"argument {number}": each
            for number, each in enumerate(given)
            if isinstance(each, Tensor) and each.requires_grad
        }
        if isinstance(module, nn.Module):
            named = module.named_parameters()
            wanted |= {f"parameter {name}": each for name, each in named if each.requires_grad}
        output = plain(module(*given))
        if not output.requires_grad:
            return ModuleAnswer(output.detach(), {}, trains=False)
        if output.shape != call.grad_output.shape:  # wrong, whatever its gradients are
            return ModuleAnswer(output.detach(), {})
        incoming = call.grad_output.to(output.dtype)
        found = torch.autograd.grad(output, list(wanted.values()), incoming, allow_unused=True)
        return ModuleAnswer(output.detach(), dict(zip(wanted, found, strict=True)))

    def time(self, call: ModuleCall) -> None:
        """Prepare a call to be timed."""
        self.timed = TimedModule(self, call)

    @property
    def timing(self) -> TimedModule:
        """The call that was prepared."""
        if self.timed is None:
            raise SubjectError("nothing is being timed")
        return self.timed


class TimedModule:
    """A call of a module, with a timer of the worker."""

    def __init__(self, modules: Modules, call: ModuleCall) -> None:
        """Call it once."""
        self.modules, self.call, self.device = modules, call, modules.device
        tensors = [each.tensor for each in call.arguments if each.tensor is not None]
        self.tensors = {n: each.tensor for n, each in enumerate(call.arguments)}
        evicts = needs_eviction(self.device, "cold", 2 * sum(each.nbytes for each in tensors))
        self.timer = make_timer(self.device, evicts, DEVICE)
        self.threads = set(threading.enumerate())
        self.warm: Warm | None = None
        self.given = modules._arguments(call)
        self.last: ModuleAnswer | None = None
        self._step()

    def warm_up(self) -> WarmData:
        """Warm up, and measure the memory of a call."""
        self.warm = replace(self.timer.warm_up(self._step), repeats=1)
        last = self.last
        assert last is not None
        results = [last.output, *last.gradients.values()]
        kept = sum(each.nbytes for each in results if each is not None)
        self.last = last = None
        results.clear()
        extra = max(0, measure_peak(self._step, self.device) - kept)
        return WarmData(1, self.warm.host_seconds, extra)

    def samples(self, patches: list[Patch], keep: int) -> ModuleSamples:
        """Take a sample after each patch; return the answer of sample ``keep``; -1 is none."""
        assert self.warm is not None
        queue = [replace(self.warm, before=partial(self._patch, patch)) for patch in patches]
        seconds = self.timer.measure(queue[: keep + 1])
        answer = None
        if keep >= 0 and self.last is not None:
            found = self.last
            gradients = {n: None if g is None else g.clone() for n, g in found.gradients.items()}
            answer = ModuleAnswer(found.output.clone(), gradients, found.trains)
        seconds += self.timer.measure(queue[keep + 1 :])
        self.last = None
        return ModuleSamples(seconds, answer)

    def looped(self, calls: int) -> None:
        """Call so often, and wait for all that the calls have begun."""
        loop(self._step, calls, self.device, self.threads)

    def _step(self) -> None:
        self.last = None
        self.last = self.modules._answer(self.call, self.given)

    def _patch(self, patch: Patch) -> None:
        """Put new contents into some rows of an argument."""
        tensor = self.tensors[patch.argument]
        assert tensor is not None
        rows = tensor[patch.start : patch.start + len(patch.rows)] if tensor.dim() else tensor
        rows.copy_(patch.rows)


def facts(made: Any) -> list[ArgumentFacts]:
    """Return what arguments are like: shapes, dtypes and the kind of their values."""
    given = [made] if isinstance(made, Tensor) else list(made)
    return [_facts(each) for each in given]


def _facts(given: Any) -> ArgumentFacts:
    if not isinstance(given, Tensor):
        if given is not None and not isinstance(given, bool | int | float | str):
            raise SubjectError(f"get_inputs gives a {type(given).__name__}, which cannot be drawn")
        return ArgumentFacts(plain=given)
    dtype, shape = str(given.dtype).removeprefix("torch."), list(given.shape)
    if given.is_floating_point():
        return ArgumentFacts(shape, dtype, _kind(given.detach()))
    if given.is_complex():
        raise SubjectError(f"get_inputs gives a tensor of {dtype}, which cannot be drawn")
    if not given.numel():
        return ArgumentFacts(shape, dtype)
    return ArgumentFacts(shape, dtype, "any", int(given.min()), int(given.max()))


def _kind(values: Tensor) -> ValueKind:
    """Say what floating values are like."""
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
