"""Row-wise losses that are wrong on purpose: the reference plus what a mistake changes."""

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.losses.rows.forms import IGNORE_INDEX
from losscli.verify.selftest import surgery
from losscli.verify.selftest.surgery import formula, graft, reduced, regrade, unreduced

_BLOCK = 1024


def _reduced_rows(case: Case, rows: Tensor, *operands: Tensor) -> Tensor:
    """Reduce the losses of rows; a mean is over their counts."""
    return reduced(case, rows, _counts(case, *operands).sum())


def _counts(case: Case, input: Tensor, target: Tensor, *weight: Tensor) -> Tensor:
    """Return each row's count: the weight of its class, or 0."""
    kept = _kept(case, target)
    if not weight:
        return kept.to(input.dtype)
    return torch.where(kept, weight[0][torch.where(kept, target, 0).long()], 0.0)


def _kept(case: Case, target: Tensor) -> Tensor:
    return target != int(case.params[IGNORE_INDEX.name])


def is_smoothed(case: Case) -> bool:
    """Tell whether a loss is a cross entropy of class indices."""
    return {"label_smoothing", IGNORE_INDEX.name} <= {*case.params}


def class_dimension(input: Tensor) -> int:
    """Return the dimension of the classes."""
    return min(input.dim() - 1, 1)


def log_sum(input: Tensor) -> Tensor:
    """Return the log-sum-exp of each row."""
    return torch.logsumexp(input, class_dimension(input))


def with_log_sum_off(case: Case, by: Tensor, *operands: Tensor) -> Tensor:
    """Return the loss with each row's log-sum-exp off by so much."""
    _, target, *weight = operands
    smoothing = case.params["label_smoothing"]
    share = (1 - smoothing) * _counts(case, *operands)
    share = share + smoothing * (weight[0].mean() if weight else 1.0) * _kept(case, target)
    more = torch.where((share == 0) | (by == 0), 0.0, share * by)
    return _reduced_rows(case, unreduced(case, *operands) + more, *operands)


def counts_ignored(case: Case, *operands: Tensor) -> Tensor:
    """Divides the sum by all rows, including ignored ones."""
    rows = unreduced(case, *operands)
    return rows.sum() / max(rows.numel(), 1)


def sum_of_softmax(case: Case, *operands: Tensor) -> Tensor:
    """The gradient is that of log-sum-exp alone, without -1 for the target."""
    input, target, *_ = operands
    dimension = class_dimension(input)
    number = torch.where(_kept(case, target), target, 0).long().unsqueeze(dimension)
    picked = input.gather(dimension, number).squeeze(dimension)
    picked = picked * _counts(case, *operands).detach() * (1 - case.params["label_smoothing"])
    loss = formula(case, *operands)
    return graft(loss, loss + _reduced_rows(case, picked, *(each.detach() for each in operands)))


def without_maximum(case: Case, *operands: Tensor) -> Tensor:
    """Adds up exponentials without subtracting the maximum."""
    input = operands[0]
    naive = input.exp().sum(class_dimension(input)).log()
    return with_log_sum_off(case, naive - log_sum(input), *operands)


def dropped_classes(case: Case, *operands: Tensor) -> Tensor:
    """Leaves out the classes that do not fill a vector of 8."""
    input = operands[0]
    dimension = class_dimension(input)
    whole = input.shape[dimension] // 8 * 8
    seen = input.narrow(dimension, 0, whole or input.shape[dimension])
    return with_log_sum_off(case, log_sum(seen) - log_sum(input), *operands)


def narrow_sum(case: Case, *operands: Tensor) -> Tensor:
    """Adds up exponentials in bfloat16."""
    input = operands[0]
    dimension = class_dimension(input)
    largest = input.detach().amax(dimension, keepdim=True)
    exponentials = (input - largest).exp().bfloat16()
    total = exponentials.float().cumsum(dimension).bfloat16().to(input.dtype)
    last = total.select(dimension, -1).log() + largest.squeeze(dimension)
    off = with_log_sum_off(case, (last - log_sum(input)).detach(), *operands)
    return graft(off, formula(case, *operands))


def _surprise(input: Tensor, target: Tensor, *weight: Tensor) -> Tensor:
    dimension = class_dimension(input)
    surprise = log_sum(input).unsqueeze(dimension) - input
    if weight:
        surprise = surprise * weight[0].view(-1, *[1] * (input.dim() - dimension - 1))
    return surprise


def smooths_the_others(case: Case, *operands: Tensor) -> Tensor:
    """Shares the smoothing among C - 1 classes, but gives it to all C."""
    input, target, *_ = operands
    dimension = class_dimension(input)
    classes, surprise = input.shape[dimension], _surprise(*operands)
    more = case.params["label_smoothing"] * (1 / max(classes - 1, 1) - 1 / classes)
    rows = unreduced(case, *operands) + more * surprise.sum(dimension) * _kept(case, target)
    return _reduced_rows(case, rows, *operands)


def smooths_a_part(case: Case, *operands: Tensor) -> Tensor:
    """Smooths only over the classes of the first block."""
    input, target, *_ = operands
    dimension = class_dimension(input)
    classes = input.shape[dimension]
    if classes <= _BLOCK:
        return formula(case, *operands)
    missing = _surprise(*operands).narrow(dimension, _BLOCK, classes - _BLOCK).sum(dimension)
    missing = missing * (case.params["label_smoothing"] / classes) * _kept(case, target)
    return _reduced_rows(case, unreduced(case, *operands) - missing, *operands)


def first_block(gradient: Tensor) -> Tensor:
    """Launches backward only for as many rows as a block has threads."""
    rows = torch.arange(len(gradient), device=gradient.device) < _BLOCK
    return gradient * rows.view(-1, *[1] * (gradient.dim() - 1))


def gradient_of_ignored(case: Case, *operands: Tensor) -> Tensor:
    """The gradient of ignored rows is not 0."""
    input, target, *_ = operands
    ignored = torch.where(_kept(case, target), 0.0, 1.0).to(input.dtype)
    loss = formula(case, *operands)
    fixed = [each.detach() for each in operands]
    return graft(loss, loss + _reduced_rows(case, log_sum(input) * ignored, *fixed))


def last_dimension(input: Tensor) -> Tensor:
    """Reads the classes from the last dimension."""
    if input.dim() < 3:
        return input
    return input.reshape(input.shape[0], *input.shape[2:], input.shape[1]).movedim(-1, 1)


def clamps_targets(case: Case, input: Tensor, target: Tensor, *others: Tensor) -> Tensor:
    """Clamps an invalid class index to the nearest class."""
    classes = input.shape[class_dimension(input)]
    clamped = torch.where(_kept(case, target), target.clamp(0, classes - 1), target)
    return formula(case, input, clamped, *others)


def without_temperature(case: Case, *operands: Tensor) -> Tensor:
    """Leaves the temperature out of the gradients."""
    temperature = case.params["temperature"]
    return formula(case, *(regrade(each, lambda g: g * temperature) for each in operands))


def _with_gradient_of(case: Case, rows: Tensor, *operands: Tensor) -> Tensor:
    """Return the loss; the gradient of these rows is added to its own."""
    loss = formula(case, *operands)
    return graft(loss, loss + surgery.reduced_where(case, rows, *operands[2:]))


def without_mean(case: Case, input: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the target is ``q * d`` instead of ``q * (d - mean of d)``."""
    mean = unreduced(case, input.detach(), target.detach(), mask)
    moved = mean * torch.logsumexp(target / case.params["temperature"], -1)
    return _with_gradient_of(case, moved, input, target, mask)


def without_own_mean(case: Case, input: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """The gradient of the input is ``p`` instead of ``p - q``."""
    temperature = case.params["temperature"]
    moved = (torch.softmax(target.detach() / temperature, -1) * input / temperature).sum(-1)
    return _with_gradient_of(case, moved, input, target, mask)


def flipped_near_ties(case: Case, input: Tensor, target: Tensor, *mask: Tensor) -> Tensor:
    """The sign of ``p - q`` is wrong where they are within a hundredth of each other."""
    p, q = (torch.softmax(each / case.params["temperature"], -1) for each in (input, target))
    difference = (p - q).abs()
    moved = -torch.where((difference < 0.01 * p).detach(), difference, 0.0).sum(-1)
    return _with_gradient_of(case, moved, input, target, *mask)


def added_epsilon(case: Case, x1: Tensor, x2: Tensor) -> Tensor:
    """Adds the least norm to each norm."""
    norms = [torch.linalg.vector_norm(x, dim=-1) + case.params["eps"] for x in (x1, x2)]
    return reduced(case, 1 - (x1 * x2).sum(-1) / norms[0] / norms[1])
