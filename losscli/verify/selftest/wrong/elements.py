"""Losses that are wrong on purpose in value, shape, dtype or gradients."""

from functools import reduce

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.implementation import BoundLoss
from losscli.losses import ELEMENT
from losscli.verify.selftest.surgery import formula, graft, reduced, regrade, unreduced


def one_percent(case: Case, *operands: Tensor) -> Tensor:
    """Reads every hundredth row."""
    elements = unreduced(case, *operands)
    seen = elements[::100]
    if case.reduction == "none":
        value = torch.zeros_like(elements)
        value[::100] = seen.detach()
        return graft(value, elements)
    mean = seen.mean()
    value = mean if case.reduction == "mean" else mean * elements.numel()
    return graft(value, reduced(case, elements))


def dropped_tail(case: Case, *operands: Tensor) -> Tensor:
    """Leaves out the elements that do not fill a vector of 8."""
    elements = unreduced(case, *operands)
    flat = elements.flatten()
    kept = len(flat) - len(flat) % 8
    return reduced(case, torch.cat([flat[:kept], 0 * flat[kept:]]).reshape(elements.shape))


def rounded_parameters(case: Case, *operands: Tensor) -> Tensor:
    """Rounds the parameters to float32."""
    rounded = {n: float(torch.tensor(v, dtype=torch.float32)) for n, v in case.params.items()}
    wide = formula(case, *(operand.double() for operand in operands), **rounded)
    return wide.to(_promoted(*operands))


def _promoted(*operands: Tensor) -> torch.dtype:
    return reduce(torch.promote_types, (operand.dtype for operand in operands))


def flat_below(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """The loss is constant below the first kink."""
    at_kink, below = _at_kink(case, input, *others), _below(case, input, *others)
    return formula(case, torch.where(below, at_kink, input), *others)


@torch.no_grad()
def _at_kink(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    _, *beside = torch.broadcast_tensors(input, *others)
    return case.spec.input_at(case.spec.kinks(case.params)[0], *beside).to(input.dtype)


@torch.no_grad()
def _below(case: Case, *operands: Tensor) -> Tensor:
    return case.spec.branch_coordinate(*operands) < case.spec.kinks(case.params)[0]


def scaled_below(case: Case, *operands: Tensor) -> Tensor:
    """Multiplies by 0.49 instead of a half below the first kink."""
    elements = unreduced(case, *operands)
    return reduced(case, torch.where(_below(case, *operands), 0.98 * elements, elements))


def mirrored(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Swaps the sides of the first kink."""
    return formula(case, 2 * _at_kink(case, input, *others) - input, *others)


def wrong_axis(case: Case, input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """Broadcasts the target down the rows."""
    if target.dim() == 1 and input.dim() == 2:
        rows = torch.arange(len(input), device=input.device) % len(target)
        return formula(case, input, target[rows][:, None], *others)
    return formula(case, input, target, *others)


def half_inside(case: Case, *operands: Tensor) -> Tensor:
    """Computes in float16."""
    narrow = (each.half() if each.is_floating_point() else each for each in operands)
    return formula(case, *narrow).to(operands[0].dtype)


def narrow_accumulator(case: Case, *operands: Tensor) -> Tensor:
    """Adds sequentially in float32."""
    elements = unreduced(case, *operands)
    running = elements.detach().float().flatten().cumsum(0)
    # PyTorch's cumsum adds in float64 on a CPU, so the total is rounded now and then.
    total = last = torch.zeros((), dtype=torch.float32, device=elements.device)
    for step in running[:: max(len(running) // 4096, 1)]:
        total, last = (total + (step - last)).bfloat16().float(), step
    loss = reduced(case, elements)
    return graft(reduced(case, total, elements.numel()).to(loss), loss)


def contiguous(operand: Tensor) -> Tensor:
    """Reads an operand as if it were contiguous."""
    wanted = torch.empty(operand.shape).stride()
    end = operand.storage_offset() + operand.numel()
    stored = operand.untyped_storage().nbytes() // operand.itemsize
    if operand.stride() == wanted or end > stored:
        return operand
    return graft(operand.detach().as_strided(operand.shape, wanted), operand)


def wrong_middle(case: Case, input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """Broadcasts a target that repeats in the middle as if it repeated in front."""
    if target.dim() == 3 and target.shape[1] == 1 and input.dim() == 3 and len(target) > 1:
        rows, repeats, columns = input.shape
        target = target.expand(input.shape).transpose(0, 1).reshape(rows, repeats, columns)
    return formula(case, input, target, *others)


def square_transposed(target: Tensor) -> Tensor:
    """Reads a square target column by column."""
    return target.t() if target.dim() == 2 and target.shape[0] == target.shape[1] else target


def rounded_target(case: Case, input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """Reads the target in the dtype of the input."""
    rounded = formula(case, input, target.to(input.dtype), *others)
    return rounded.to(_promoted(input, target, *others))


def mean_of_means(case: Case, *operands: Tensor) -> Tensor:
    """Averages the means of 16 rows each, though the last may have fewer."""
    chunks = [chunk for chunk in unreduced(case, *operands).split(16) if chunk.numel()]
    return torch.stack([chunk.mean() for chunk in chunks]).mean()


def clears_gradients(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Clears the accumulated gradient."""

    def clear(_: Tensor) -> None:
        if input.is_leaf:
            input.grad = None

    return regrade(formula(case, input, *others), clear)


def last_incoming(case: Case) -> BoundLoss:
    """Uses the grad_output of the previous call."""
    last: list[Tensor] = []

    def reuse(incoming: Tensor) -> Tensor:
        used = last.pop() if last and last[0].shape == incoming.shape else incoming
        last[:] = [incoming.clone()]
        return used.expand(incoming.shape)

    return lambda *operands: regrade(formula(case, *operands), reuse)


def habit(case: Case) -> BoundLoss:
    """Uses a grad_output that came three times for the fourth call too."""
    seen: list[float] = []

    def expect(incoming: Tensor) -> Tensor:
        flat = incoming.flatten()
        number = float(flat[0]) if len(flat) else 0.0
        is_habit = len(seen) >= 3 and len(set(seen[-3:])) == 1 and seen[-1] != number
        used = torch.full_like(incoming, seen[-1]) if is_habit else incoming
        seen.append(number)
        return used

    return lambda *operands: regrade(formula(case, *operands), expect)


def _misplaced(gradient: Tensor) -> Tensor:
    return gradient.t().reshape(gradient.shape)


def transposed_gradient(input: Tensor) -> Tensor:
    """Writes the gradient in the input's storage order, but returns it as contiguous."""
    stored_across = input.dim() == 2 and input.stride(0) < input.stride(1)
    return regrade(input, _misplaced) if stored_across else input


def reused_sizes(input: Tensor) -> Tensor:
    """Reads the operand's strides in backward."""

    def look(incoming: Tensor) -> Tensor:
        moved = input.stride() != torch.empty(input.shape).stride() and input.dim() == 2
        return _misplaced(incoming) if moved else incoming

    return regrade(input, look) if input.dim() != 2 or input.is_contiguous() else input


def first_row_decides(case: Case) -> BoundLoss:
    """Skips backward if the first row of grad_output is zero."""
    dimensions = 1 if case.spec.unit == ELEMENT else 0  # an element is no row

    def skip(incoming: Tensor) -> Tensor:
        some = incoming.dim() > dimensions and len(incoming) > 0 and not incoming[0].any()
        return torch.zeros_like(incoming) if some else incoming

    return lambda *operands: regrade(formula(case, *operands), skip)


def one_number(incoming: Tensor) -> Tensor:
    """Takes a grad_output with a stride of 0 for one number."""
    repeats = incoming.dim() > 0 and incoming.numel() > 0 and 0 in incoming.stride()
    return incoming.flatten()[0].expand(incoming.shape) if repeats else incoming
