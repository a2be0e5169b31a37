"""Implementations that are wrong on purpose, with one typical mistake each."""

from __future__ import annotations

import os
import random
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations import Implementation
from losscli.reasons import Reason
from losscli.verify.selftest.surgery import graft, linear, regrade, stored

if TYPE_CHECKING:
    from losscli.implementations.implementation import BoundLoss

Make = Callable[[Case], "BoundLoss"]


@dataclass(frozen=True)
class Wrong:
    """One mistake."""

    name: str
    mistake: str
    bind: Make
    applies: Callable[[Case], bool] = lambda case: True
    """Whether it is a mistake in a case: only where there are branches is one to be left out."""
    temporaries: int | None = None
    """The claims of the implementation, as the next field; see :class:`Implementation`."""
    held_to_oracle: bool = False

    def implementation(self) -> Implementation:
        """Return the mistake as an implementation."""
        return Implementation(
            f"wrong:{self.name}",
            self.mistake,
            self.bind,
            self._unavailable,
            self.temporaries,
            held_to_oracle=self.held_to_oracle,
        )

    def _unavailable(self, case: Case) -> Reason | None:
        if self.applies(case):
            return None
        return Reason("not_applicable", f"{self.name} is no mistake here")


def _formula(case: Case, input: Tensor, target: Tensor, **changes: object) -> Tensor:
    """Return the reference, some of whose settings may be changed."""
    settings = {"reduction": case.reduction, **case.spec.resolve(case.params), **changes}
    return case.spec.reference(input, target, **settings)


def _elements(case: Case, input: Tensor, target: Tensor, **changes: object) -> Tensor:
    return _formula(case, input, target, reduction="none", **changes)


def _reduced(case: Case, elements: Tensor, count: int | None = None) -> Tensor:
    """Reduce elements as the case asks for; a mean over ``count``, or over all that are given."""
    if case.reduction == "none":
        return elements
    total = elements.sum()
    return total / (count or elements.numel()) if case.reduction == "mean" else total


def _simple(function: Callable[[Case, Tensor, Tensor], Tensor]) -> Make:
    """Bind a function of case, input and target."""
    return lambda case: partial(function, case)


def _constant(case: Case, input: Tensor, target: Tensor) -> Tensor:
    loss = _formula(case, input, target)
    return graft(torch.full_like(loss, 0.375), loss)


def _zeros(case: Case, input: Tensor, target: Tensor) -> Tensor:
    loss = _formula(case, input, target)
    return graft(loss, 0 * loss)


def _one_percent(case: Case, input: Tensor, target: Tensor) -> Tensor:
    elements = _elements(case, input, target)
    seen = elements[::100]
    if case.reduction == "none":
        return graft(
            torch.zeros_like(elements).index_copy(0, _every(elements, 100), seen), elements
        )
    mean = seen.mean()
    value = mean if case.reduction == "mean" else mean * elements.numel()
    return graft(value, _reduced(case, elements))


def _every(elements: Tensor, step: int) -> Tensor:
    return torch.arange(0, len(elements), step, device=elements.device)


def _dropped_tail(case: Case, input: Tensor, target: Tensor) -> Tensor:
    elements = _elements(case, input, target)
    flat = elements.flatten()
    kept = len(flat) - len(flat) % 8
    cut = torch.cat([flat[:kept], 0 * flat[kept:]]).reshape(elements.shape)
    return _reduced(case, cut)


def _ignored_parameters(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, target, **{p.name: p.default for p in case.spec.parameters})


def _rounded_parameters(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Takes the parameters as float32 holds them, and is right otherwise."""
    rounded = {name: struct.unpack("f", struct.pack("f", v))[0] for name, v in case.params.items()}
    wide = _formula(case, input.double(), target.double(), **rounded)
    return wide.to(torch.promote_types(input.dtype, target.dtype))


def _flat_below(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Below the first kink the loss stays what it is there."""
    first = case.spec.kinks(case.params)[0]
    with torch.no_grad():
        y = target.expand(torch.broadcast_shapes(input.shape, target.shape))
        intercept = case.spec.branch_coordinate(torch.zeros_like(y), y)
        slope = case.spec.branch_coordinate(torch.ones_like(y), y) - intercept
        at_kink = ((first - intercept) / slope).to(input.dtype)
        below = case.spec.branch_coordinate(input, y) < first
    return _formula(case, torch.where(below, at_kink, input), target)


def _mirrored(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Takes what is above the first kink for what is below it."""
    first = case.spec.kinks(case.params)[0]
    with torch.no_grad():
        y = target.expand(torch.broadcast_shapes(input.shape, target.shape))
        intercept = case.spec.branch_coordinate(torch.zeros_like(y), y)
        slope = case.spec.branch_coordinate(torch.ones_like(y), y) - intercept
        twice = (2 * (first - intercept) / slope).to(input.dtype)
    return _formula(case, twice - input, target)


def _wrong_axis(case: Case, input: Tensor, target: Tensor) -> Tensor:
    if target.dim() == 1 and input.dim() == 2:
        rows = torch.arange(len(input), device=input.device) % len(target)
        return _formula(case, input, target[rows][:, None])
    return _formula(case, input, target)


def _sum_for_mean(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, target, reduction="sum")


def _rows_for_elements(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, target, reduction="sum") / input.shape[0]


def _ignored_incoming(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return regrade(_formula(case, input, target), torch.ones_like)


def _wrong_sign(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, regrade(target, torch.neg))


def _absent_target(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, target.detach())


def _detached(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, target).detach()


def _half_inside(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input.half(), target.half()).to(input.dtype)


def _narrow_accumulator(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Adds in float32, one element after the other."""
    elements = _elements(case, input, target)
    running = elements.detach().float().flatten().cumsum(0)
    # PyTorch's cumsum adds in float64 on a CPU: round what has been carried so far, now and then.
    total = torch.zeros((), dtype=torch.float32, device=input.device)
    last = torch.zeros((), dtype=torch.float32, device=input.device)
    for step in running[:: max(len(running) // 4096, 1)]:
        total, last = (total + (step - last)).bfloat16().float(), step
    loss = _reduced(case, elements)
    return graft((total / elements.numel() if case.reduction == "mean" else total).to(loss), loss)


def _contiguous(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Reads operands as if they lay in one piece, as a kernel that takes pointers does."""

    def straight(tensor: Tensor) -> Tensor:
        wanted = torch.empty(tensor.shape).stride()
        last = tensor.storage_offset() + tensor.numel() - 1
        if (
            tensor.stride() == wanted
            or last >= tensor.untyped_storage().nbytes() // tensor.itemsize
        ):
            return tensor
        return graft(tensor.detach().as_strided(tensor.shape, wanted), tensor)

    return _formula(case, straight(input), straight(target))


def _scrubbed(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, torch.nan_to_num(input), target)


def _in_place(case: Case, input: Tensor, target: Tensor) -> Tensor:
    loss = _formula(case, input, target)
    with torch.no_grad():
        input.view_as(input).add_(0.25)
    return loss


def _cached(case: Case) -> BoundLoss:
    known: dict[object, Tensor] = {}

    def function(input: Tensor, target: Tensor) -> Tensor:
        loss = _formula(case, input, target)
        key = (input.data_ptr(), target.data_ptr(), input.shape)
        return graft(known.setdefault(key, loss.detach().clone()), loss)

    return function


def _first_call_only(case: Case) -> BoundLoss:
    calls = 0

    def function(input: Tensor, target: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        loss = _formula(case, input, target)
        return loss if calls == 1 else graft(loss.detach() * 2, loss)

    return function


def _uninitialised(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Adds up blocks in memory of which the last has never been written."""
    elements = _elements(case, input, target)
    if case.reduction == "none":
        out = torch.empty_like(elements)
        out.flatten()[:-1] = elements.detach().flatten()[:-1]
        return graft(out, elements)
    rows = torch.empty(len(elements) + 1, dtype=elements.dtype, device=elements.device)
    rows[:-1] = elements.detach().flatten(1).sum(1) if elements.dim() > 1 else elements.detach()
    loss = _reduced(case, elements)
    total = rows.sum()
    return graft(total / elements.numel() if case.reduction == "mean" else total, loss)


def _beyond_the_end(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Reads the element behind the last, where the memory is there to be read."""
    loss = _formula(case, input, target)
    behind = input.storage_offset() + input.numel()
    if not input.is_contiguous() or behind >= input.untyped_storage().nbytes() // input.itemsize:
        return loss
    more = input.detach().as_strided((1,), (1,), behind)
    return graft(loss.detach() + 0 * more.sum(), loss)


def _unsteady(case: Case, input: Tensor, target: Tensor) -> Tensor:
    loss = _formula(case, input, target)
    noise = random.SystemRandom().random() * 1e-3  # nobody's random state is changed by it
    return graft(loss.detach() * (1 + noise), loss)


def _shape_of_one(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input, target).reshape(1)


def _other_dtype(case: Case, input: Tensor, target: Tensor) -> Tensor:
    loss = _formula(case, input, target)
    return loss.double() if loss.dtype != torch.float64 else loss.float()


def _no_curvature(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """The gradients have no graph: their derivatives are zero."""
    return linear(partial(_formula, case), input, target)


def _scales_in_place(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """A second backward pass finds what the first has scaled."""
    return stored(partial(_formula, case), input, target)


def _clears_gradients(case: Case, input: Tensor, target: Tensor) -> Tensor:
    def clearing(incoming: Tensor) -> Tensor:
        if input.is_leaf:
            input.grad = None
        return incoming

    return regrade(_formula(case, input, target), clearing)


def _regraded(case: Case, function: Callable[[Tensor], Tensor]) -> BoundLoss:
    """Return the reference, whose incoming gradient goes through a function first."""

    def loss(input: Tensor, target: Tensor) -> Tensor:
        return regrade(_formula(case, input, target), function)

    return loss


def _last_incoming(case: Case) -> BoundLoss:
    """Keeps the gradient for the incoming gradient of the call before."""
    last: list[Tensor] = []

    def reuse(incoming: Tensor) -> Tensor:
        used = last.pop() if last and last[0].shape == incoming.shape else incoming
        last[:] = [incoming.clone()]
        return used.expand(incoming.shape)

    return _regraded(case, reuse)


def _habit(case: Case) -> BoundLoss:
    """Takes an incoming gradient that came three times for what comes the fourth time."""
    seen: list[float] = []

    def expect(incoming: Tensor) -> Tensor:
        flat = incoming.flatten()
        number = float(flat[0]) if len(flat) else 0.0
        if seen[-3:] == [number] * 3 or len(set(seen[-3:])) != 1 or len(seen) < 3:
            used = incoming
        else:
            used = torch.full_like(incoming, seen[-1])
        seen.append(number)
        return used

    return _regraded(case, expect)


def _skips_in_a_capture(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Leaves out of a captured backward pass what an incoming gradient of 1 does not need."""

    def skip(incoming: Tensor) -> Tensor:
        capturing = torch.cuda.is_current_stream_capturing()
        return torch.ones_like(incoming) if capturing else incoming

    return regrade(_formula(case, input, target), skip)


def _transposed_gradient(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Writes the gradient in the order in which the input is stored, and calls it dense."""

    def misplace(incoming: Tensor) -> Tensor:
        return incoming.t().reshape(incoming.shape)

    stored_across = input.dim() == 2 and input.stride(0) < input.stride(1)
    return _formula(case, regrade(input, misplace) if stored_across else input, target)


def _wrong_middle(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Takes a target that repeats in the middle for one that repeats in front."""
    if target.dim() == 3 and target.shape[1] == 1 and input.dim() == 3 and len(target) > 1:
        rows, repeats, columns = input.shape
        target = target.expand(input.shape).transpose(0, 1).reshape(rows, repeats, columns)
    return _formula(case, input, target)


def _square_transposed(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Reads a square target column by column."""
    square = target.dim() == 2 and target.shape[0] == target.shape[1]
    return _formula(case, input, target.t() if square else target)


def _rounded_target(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Reads the target in the dtype of the input."""
    return _formula(case, input, target.to(input.dtype)).to(
        torch.promote_types(input.dtype, target.dtype)
    )


def _reused_sizes(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Looks in backward at where the operand lies then."""

    def look(incoming: Tensor) -> Tensor:
        strides = torch.empty(input.shape).stride()
        moved = input.stride() != strides and input.dim() == 2
        return incoming.t().reshape(incoming.shape) if moved else incoming

    straight = input.dim() != 2 or input.is_contiguous()
    return _formula(case, regrade(input, look) if straight else input, target)


def _one_ulp(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Rounds up what needs no rounding."""
    loss = _formula(case, input, target)
    return graft(torch.nextafter(loss.detach(), torch.full_like(loss, torch.inf)), loss)


def _first_row_decides(case: Case) -> BoundLoss:
    """Leaves backward out where the first row of the incoming gradient is zero."""

    def skip(incoming: Tensor) -> Tensor:
        some = incoming.dim() > 1 and len(incoming) > 0 and not incoming[0].any()
        return torch.zeros_like(incoming) if some else incoming

    return _regraded(case, skip)


def _one_number(case: Case) -> BoundLoss:
    """Takes an incoming gradient with a stride of 0 for one number."""

    def first(incoming: Tensor) -> Tensor:
        repeats = incoming.dim() > 0 and incoming.numel() > 0 and 0 in incoming.stride()
        return incoming.flatten()[0].expand(incoming.shape) if repeats else incoming

    return _regraded(case, first)


def _mean_of_means(case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Averages the means of 16 rows each, whatever rows the last of them has."""
    chunks = [chunk for chunk in _elements(case, input, target).split(16) if chunk.numel()]
    return torch.stack([chunk.mean() for chunk in chunks]).mean()


def _leaves(change: Callable[[], object]) -> Make:
    """Bind the reference, which changes something of the process as well."""

    def bind(case: Case) -> BoundLoss:
        def function(input: Tensor, target: Tensor) -> Tensor:
            loss = _formula(case, input, target)
            change()
            return loss

        return function

    return bind


def _patch_torch() -> None:
    original = torch.nn.functional.l1_loss

    def patched(*operands: Any, **settings: Any) -> Tensor:
        return original(*operands, **settings)

    torch.nn.functional.l1_loss = patched


LEFT_BEHIND: dict[str, Callable[[], object]] = {
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's random state": lambda: torch.manual_seed(1),
    "Python's random state": lambda: random.seed(1),
    "grad mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "flush-denormal mode": lambda: torch.set_flush_denormal(True),
    "TF32 of products": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "determinism of algorithms": lambda: torch.use_deterministic_algorithms(True),
    "environment variables": lambda: os.environ.update(LOSSCLI_SELF_TEST="left behind"),
    "signal handlers": lambda: signal.signal(signal.SIGUSR2, lambda *_: None),
    "functions of torch": _patch_torch,
}
"""The state that a call can change for later calls, by name."""


def _copies(case: Case, input: Tensor, target: Tensor) -> Tensor:
    return _formula(case, input.contiguous(), target.contiguous())


def _is_reduced(case: Case) -> bool:
    return case.reduction != "none"


def _is_not_reduced(case: Case) -> bool:
    return case.reduction == "none"


def _is_mean(case: Case) -> bool:
    return case.reduction == "mean"


def _has_kinks(case: Case) -> bool:
    return bool(case.spec.kinks(case.params))


def _nothing_is_left_at_a_kink(case: Case) -> bool:
    """Tell whether the loss beside a kink is what the parameters and operands leave of it."""
    kinks = [kink for kink in case.spec.kinks(case.params) if kink]
    at = [torch.tensor(value, dtype=torch.float64) for value in (*kinks, 1.0)]
    return any(float(_elements(case, kink, at[-1])) == 0 for kink in at[:-1])


def _on_a_gpu(case: Case) -> bool:
    return case.device != "cpu"


def _has_parameters(case: Case) -> bool:
    return bool(case.spec.parameters)


def _broadcasts(case: Case) -> bool:
    return case.target_shape != case.shape


WRONG: tuple[Wrong, ...] = (
    Wrong("constant", "returns a number of its own", _simple(_constant)),
    Wrong("zeros", "gradients of zero", _simple(_zeros)),
    Wrong("one percent", "reads every hundredth row", _simple(_one_percent)),
    Wrong("dropped tail", "leaves out what does not fill a vector of 8", _simple(_dropped_tail)),
    Wrong("ignored parameter", "takes the default", _simple(_ignored_parameters), _has_parameters),
    Wrong(
        "rounded parameters",
        "takes them in float32",
        _simple(_rounded_parameters),
        _nothing_is_left_at_a_kink,
        held_to_oracle=True,
    ),
    Wrong("branch left out", "constant below the first kink", _simple(_flat_below), _has_kinks),
    Wrong("branches swapped", "each side of the first kink", _simple(_mirrored), _has_kinks),
    Wrong("wrong axis", "broadcasts the target down the rows", _simple(_wrong_axis), _broadcasts),
    Wrong("sum for mean", "does not divide", _simple(_sum_for_mean), _is_mean),
    Wrong("1/rows for 1/N", "divides by the rows", _simple(_rows_for_elements), _is_mean),
    Wrong("ignored incoming", "the incoming gradient counts as 1", _simple(_ignored_incoming)),
    Wrong("wrong sign", "of the target's gradient", _simple(_wrong_sign)),
    Wrong("absent gradient", "of the target", _simple(_absent_target)),
    Wrong("detached", "the loss has no history", _simple(_detached)),
    Wrong("float16 inside", "computes in float16", _simple(_half_inside)),
    Wrong("narrow accumulator", "adds up in few digits", _simple(_narrow_accumulator), _is_reduced),
    Wrong("assumes contiguous", "reads as if all lay in one piece", _simple(_contiguous)),
    Wrong("NaN scrubbed", "takes NaN and infinity for numbers", _simple(_scrubbed)),
    Wrong("in place", "writes over its input", _simple(_in_place)),
    Wrong("cached", "remembers results by address", _cached),
    Wrong("first call only", "right once", _first_call_only),
    Wrong("uninitialised", "returns what was in the memory", _simple(_uninitialised)),
    Wrong("beyond the end", "reads one element too many", _simple(_beyond_the_end)),
    Wrong("unsteady", "other results from run to run", _simple(_unsteady)),
    Wrong("shape (1,)", "for ()", _simple(_shape_of_one), _is_reduced),
    Wrong("other dtype", "float64 for float32", _simple(_other_dtype)),
    Wrong("no curvature", "second derivatives of zero", _simple(_no_curvature)),
    Wrong("scales in place", "the gradient that it stores", _simple(_scales_in_place), _is_reduced),
    Wrong("clears .grad", "so that nothing accumulates", _simple(_clears_gradients)),
    Wrong("last incoming", "the gradient of the call before", _last_incoming),
    Wrong("habit", "what came three times comes again", _habit, _is_reduced),
    Wrong(
        "skips in a capture", "1 comes in when replayed", _simple(_skips_in_a_capture), _on_a_gpu
    ),
    Wrong("transposed gradient", "in the order of storage", _simple(_transposed_gradient)),
    Wrong("wrong middle", "broadcasts the middle to the front", _simple(_wrong_middle)),
    Wrong("square transposed", "reads a square target by columns", _simple(_square_transposed)),
    Wrong("rounded target", "reads it in the input's dtype", _simple(_rounded_target)),
    Wrong("looks again", "at the operand's strides in backward", _simple(_reused_sizes)),
    Wrong("one ulp off", "rounds up what is exact", _simple(_one_ulp)),
    Wrong("first row decides", "if it is zero, all is", _first_row_decides, _is_not_reduced),
    Wrong("one number", "where a stride is 0", _one_number, _is_not_reduced),
    Wrong("mean of means", "of 16 rows each, or fewer", _simple(_mean_of_means), _is_mean),
    *(
        Wrong(f"leaves {name}", "changed for all that comes after", _leaves(change))
        for name, change in LEFT_BEHIND.items()
    ),
    Wrong("copies", "operands, and says it does not", _simple(_copies), _is_mean, temporaries=0),
)


def find_wrong(name: str) -> Wrong:
    """Look a mistake up by its name; StopIteration where there is none."""
    return next(wrong for wrong in WRONG if wrong.name == name)
