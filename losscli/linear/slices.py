"""The plan of some classes at a time: backward makes the logits again that were not kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from losscli.losses.formulas import widened
from losscli.losses.linear.plan import Plan

from . import products
from .kernels import Bent, log_sums_of, slice_gradient
from .products import Layer
from .rows import Rows


@dataclass
class _Slice:
    """Some classes' logits, and which of each row the kernels look at."""

    bent: Bent
    inside: Tensor
    """Whether the row's own class is among them."""
    number: Tensor
    """That class, or for other rows the first of these."""

    @classmethod
    def of(cls, rows: Rows, logits: Tensor, classes: slice) -> _Slice:
        place = rows.known - classes.start
        inside = (place >= 0) & (place < classes.stop - classes.start)
        return cls(Bent.of(logits, rows.settings), inside, torch.where(inside, place, 0))

    def logit(self) -> Tensor:
        """Return the logit of that class over the temperature."""
        found = self.bent.logits.gather(1, self.number.unsqueeze(1)).squeeze(1)
        return found.to(widened(found.dtype)) / self.bent.temperature


def forward(
    rows: Rows, plan: Plan, layer: Layer, wanted: tuple[bool, ...]
) -> tuple[Tensor, Tensor | None, list[Tensor]]:
    """Return the losses, the logarithms of the sums, and what backward needs of each row.

    The probability of a row's class in its own slice keeps its digits where it is near 1; what
    the other slices have is added to what that slice lacks.
    """
    hidden, weight, _ = layer
    entropy, logs, entropies, kept_logits = rows.settings.entropy, [], [], []
    own = hidden.new_zeros((2, len(hidden)), dtype=widened(hidden.dtype))
    weighted = own.new_zeros(len(hidden)) if rows.settings.label_smoothing else None
    for k, classes in enumerate(products.parts(len(weight), plan.part)):
        logits = layer.of_classes(classes).logits()
        if any(wanted) and k < plan.kept:
            kept_logits.append(logits)
        some = _Slice.of(rows, logits, classes)
        found = some.bent.log_probs(some.number, entropy=entropy)
        if entropy:
            found, of_slice = found.unbind(0)
            entropies.append(of_slice)
        logit = some.logit()
        # Where any logit may be infinite, the class looked at may have none of the sum.
        logs.append(log_sums_of(some.bent) if _may_be_infinite(layer) else logit - found)
        own = torch.where(some.inside, torch.stack([logit, -found]), own)
        if weighted is not None:
            weighted += _weighted_sum(some.bent, rows, classes)
        del logits, some
    log, (logit, surprise) = torch.stack(logs), own
    log_sums = torch.logsumexp(log, 0)
    if len(log) > 1:
        others = torch.arange(len(log), device=log.device).unsqueeze(1) != rows.known // plan.part
        surprise = _with_others(surprise, logit, others, log, log_sums)
    surprise = surprise.masked_fill(rows.wrong, torch.nan)
    shown = log_sums if rows.with_log_sums else None
    if entropy:
        of_slices = log - log_sums
        terms = of_slices.exp() * (torch.stack(entropies) - of_slices)
        values = torch.stack([-surprise, torch.where(of_slices == -torch.inf, 0.0, terms).sum(0)])
        more = [values[1], torch.stack(entropies)]
        return values, shown, [surprise, log_sums, log, values.new_ones(()), *more, *kept_logits]
    losses, factor = rows.reduced(rows.losses(surprise, log_sums, weighted))
    return losses, shown, [surprise, log_sums, log, factor, *kept_logits]


def backward(
    rows: Rows,
    plan: Plan,
    layer: Layer,
    incoming: Tensor,
    kept: list[Tensor],
    wanted: tuple[bool, ...],
) -> list[Tensor | None]:
    """Return the gradients of the hidden states, the weight and the bias."""
    hidden, weight, _ = layer
    surprise, log_sums, log, factor, *kept_logits = kept
    entropy = entropies = None
    if rows.settings.entropy:
        entropy, entropies, *kept_logits = kept_logits
    factors = rows.factors(incoming * factor, log_sums, entropy)
    power = products.power_of(factors.of_all, hidden.dtype)
    factors = factors.scaled(power)
    of_own = factors.of_row(surprise, rows.own_weight)
    of_hidden = None
    of_weight = torch.empty_like(weight) if wanted[1] else None
    of_bias = torch.empty_like(weight[:, 0]) if wanted[2] else None
    for k, classes in enumerate(products.parts(len(weight), plan.part)):
        logits = kept_logits[k] if k < len(kept_logits) else layer.of_classes(classes).logits()
        some = _Slice.of(rows, logits, classes)
        del logits
        log_share = log[k] - log_sums
        into = -log_share.exp() * factors.of_all
        if factors.of_log is not None and entropies is not None:
            # The kernel takes p and log(p) of this slice alone: share times p, log(share) more.
            of_log = -log_share.exp() * factors.of_log
            beyond = torch.where(of_log == 0, 0.0, of_log * (log_share - entropies[k]))
            into = torch.stack([into + beyond, of_log])
        value = torch.where(some.inside, of_own, factors.of_class(some.logit() - log_sums))
        if factors.of_share is not None:
            # The own class has its share already.
            first = 1.0 if rows.class_weight is None else rows.class_weight[classes.start]
            value = torch.where(some.inside, value, value - factors.of_share * first)
        of_classes = None if rows.class_weight is None else rows.class_weight[classes]
        gradient = slice_gradient(
            some.bent, some.number, value, into, factors.of_share, of_classes
        ).to(hidden.dtype)
        if _may_be_infinite(layer):
            # Of classes of which none is possible the kernel returns NaN.
            gradient.masked_fill_((log[k] == -torch.inf).unsqueeze(1), 0.0)
        del some
        if wanted[0]:
            of_hidden = products.add(of_hidden, gradient, weight[classes])
        if of_weight is not None:
            products.weight_gradient(gradient, hidden, power, of_weight[classes])
        if of_bias is not None:
            of_bias[classes] = gradient.sum(0, dtype=surprise.dtype) * power
        del gradient
    if of_hidden is not None:
        of_hidden = (of_hidden * power).to(hidden.dtype)
    return [of_hidden, of_weight, of_bias]


def _may_be_infinite(layer: Layer) -> bool:
    """Tell whether logits may be -inf: by a bias, or too large for their dtype."""
    return layer.bias is not None or layer.hidden.dtype != torch.bfloat16


def _with_others(
    surprise: Tensor, logit: Tensor, others: Tensor, log: Tensor, log_sums: Tensor
) -> Tensor:
    """Return minus the log-probability among all classes, from that among those of a slice.

    ``others``: which slices are not that of the row's class, ``(slices, N)``.
    """
    rest = torch.where(others, (log - logit).exp(), 0.0).sum(0)
    near, far = torch.log1p(torch.expm1(surprise) + rest), log_sums - logit
    return torch.where(far < 1, near, far)


def _weighted_sum(bent: Bent, rows: Rows, classes: slice) -> Tensor:
    """Return the sum of each row's logits over the temperature times the weights of classes."""
    logits = bent.logits
    if rows.class_weight is None:
        return logits.sum(1, dtype=widened(logits.dtype)) / bent.temperature
    weights = rows.class_weight[classes].to(logits.dtype).unsqueeze(1)
    return products.wide(logits, weights).squeeze(1) / bent.temperature
