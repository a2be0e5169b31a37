"""Computes the losses of hidden states by a plan, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from . import products
from .plan import CHUNKS, WHOLE, Plan
from .rows import Bent, Factors, Settings, Sums, losses_in_place, own_gradient, slice_gradient, wide

Kept = tuple[Tensor, ...]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


@dataclass(frozen=True)
class Work:
    """One call: everything but the hidden states, the weight and the bias of their product."""

    plan: Plan
    target: Tensor
    """The class of each row."""
    class_weight: Tensor | None
    settings: Settings
    reduction: str
    """What forward reduces the losses by; the entropies by none."""
    with_log_sums: bool
    """Whether the logarithms of the sums of exponentials are asked for."""
    may_ignore: bool
    """Whether there may be rows that do not count."""
    classes: int

    def forward(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, wanted: Gradients | Any
    ) -> tuple[Tensor, Tensor | None, Kept]:
        """Return the losses, the logarithms of the sums, and what backward needs."""
        if any(wanted) and self.plan.kind == WHOLE:
            return self._whole(hidden, weight, bias)
        if any(wanted) and self.plan.kind == CHUNKS:
            return self._chunks(hidden, weight, bias, wanted)
        return self._values(hidden, weight, bias, keep=any(wanted))

    def backward(
        self,
        incoming: Tensor,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        kept: Kept,
        wanted: Any,
    ) -> Gradients:
        """Return the gradients of the hidden states, the weight and the bias."""
        if self.plan.kind == WHOLE:
            return self._backward_of_whole(incoming, hidden, weight, *kept, wanted=wanted)
        if self.plan.kind == CHUNKS:
            like = (hidden, weight, bias)
            return _scaled(incoming, kept, like, wanted)
        return self._backward_of_slices(incoming, hidden, weight, bias, kept, wanted)

    # Whole logits.

    def _whole(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Kept]:
        logits = linear(hidden, weight, bias)
        log_sums = self._log_sums(logits)
        # A gradient of float16 over the number of rows would be 0 for most classes.
        divided = self.reduction == "mean" and hidden.dtype != torch.float16
        losses = losses_in_place(
            logits,
            self.target,
            self.class_weight,
            self.settings,
            "mean" if divided else "none",
        )
        factor = torch.ones((), dtype=losses.dtype, device=losses.device)
        if not divided:
            losses, factor = self._reduced(losses)
        return losses, log_sums, (logits, factor)

    def _backward_of_whole(
        self,
        incoming: Tensor,
        hidden: Tensor,
        weight: Tensor,
        gradient: Tensor,
        factor: Tensor,
        *,
        wanted: Any,
    ) -> Gradients:
        of_rows = incoming * factor
        if of_rows.dim() == 0:
            of_rows = of_rows.expand(len(hidden))
        column, power = of_rows.unsqueeze(1), _power(of_rows, hidden.dtype)
        of_hidden = of_weight = of_bias = None
        if wanted[1]:
            of_weight = torch.empty_like(weight)
            scaled = (hidden * (column / power)).to(hidden.dtype)
            _weight_gradient(gradient, scaled, power, of_weight)
        if wanted[2]:
            of_bias = products.row_sums(gradient, of_rows).to(weight.dtype)
        if wanted[0]:
            of_hidden = products.wide(gradient, weight).mul_(column).to(hidden.dtype)
        return of_hidden, of_weight, of_bias

    # Chunks of rows.

    def _chunks(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, wanted: Any
    ) -> tuple[Tensor, Tensor | None, Kept]:
        of_weight = of_bias = None
        losses, log_sums, of_hidden = [], [], []
        for rows in _parts(len(hidden), self.plan.rows):
            some = hidden[rows]
            logits = linear(some, weight, bias)
            log_sums.append(self._log_sums(logits))
            target = self.target[rows]
            losses.append(losses_in_place(logits, target, self.class_weight, self.settings))
            if wanted[0]:
                of_hidden.append(products.wide(logits, weight))
            if wanted[1]:
                of_weight = products.add(of_weight, logits.t(), some)
            if wanted[2]:
                sums = logits.sum(0, dtype=wide(logits.dtype))
                of_bias = sums if of_bias is None else of_bias.add_(sums)
        total, factor = self._reduced(torch.cat(losses))
        found = (self._joined(of_hidden), of_weight, of_bias)
        kept = tuple(hidden.new_empty(0) if each is None else each for each in found)
        return total, self._joined(log_sums), (*kept, factor)

    # Slices of classes.

    def _values(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, *, keep: bool
    ) -> tuple[Tensor, Tensor | None, Kept]:
        losses, surprises, log_sums, entropies = [], [], [], []
        for rows in _parts(len(hidden), self.plan.rows):
            logits, target = linear(hidden[rows], weight, bias), self.target[rows]
            bent = Bent.of(logits, self.settings)
            if keep or self.settings.plain or self.settings.entropy:
                found = bent.log_probs(self._counted(target), entropy=self.settings.entropy)
                if self.settings.entropy:
                    entropies.append(found[1])
                surprises.append(-found[0] if self.settings.entropy else -found)
            if keep or self.with_log_sums:
                finite = _are_finite(logits, bias)
                if finite and surprises:
                    own = logits.gather(1, self._known(target).unsqueeze(1)).squeeze(1)
                    log_sums.append(own / bent.temperature + surprises[-1])
                else:
                    log_sums.append(Sums.of(bent, finite=finite).log)
            del bent
            if self.settings.entropy:
                continue
            if self.settings.plain:
                losses.append(self._weighted(surprises[-1], target))
            else:
                losses.append(losses_in_place(logits, target, self.class_weight, self.settings))
        joined = self._joined(log_sums)
        if self.settings.entropy:
            values = torch.stack([-torch.cat(surprises), torch.cat(entropies)])
            factor = values.new_ones(())
        else:
            values, factor = self._reduced(torch.cat(losses))
        if not keep:
            return values, joined if self.with_log_sums else None, ()
        assert joined is not None
        more = (values[1],) if self.settings.entropy else ()
        shown = joined if self.with_log_sums else None
        return values, shown, (torch.cat(surprises), joined, factor, *more)

    def _backward_of_slices(
        self,
        incoming: Tensor,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        kept: Kept,
        wanted: Any,
    ) -> Gradients:
        surprise, log_sums, factor, *more = kept
        factors = self._factors(incoming * factor, log_sums, *more)
        power = _power(factors.of_all, hidden.dtype)
        factors = factors.scaled(power)
        of_hidden = None
        of_weight = torch.empty_like(weight) if wanted[1] else None
        of_bias = torch.empty_like(weight[:, 0]) if wanted[2] else None
        target = self._known(self.target)
        own = own_gradient(surprise, self.class_weight, target, factors)
        for classes in _parts(len(weight), self.plan.classes):
            part = weight[classes]
            logits = linear(hidden, part, None if bias is None else bias[classes])
            inside = (target >= classes.start) & (target < classes.stop)
            gradient = slice_gradient(
                logits,
                inside,
                torch.where(inside, target - classes.start, 0),
                own,
                log_sums,
                None if self.class_weight is None else self.class_weight[classes],
                factors,
                self.settings,
                finite=_are_finite(logits, bias),
            )
            del logits
            if wanted[0]:
                of_hidden = products.add(of_hidden, gradient, part)
            if of_weight is not None:
                _weight_gradient(gradient, hidden, power, of_weight[classes])
            if of_bias is not None:
                of_bias[classes] = gradient.sum(0, dtype=surprise.dtype) * power
        if of_hidden is not None:
            of_hidden = (of_hidden * power).to(hidden.dtype)
        return of_hidden, of_weight, of_bias

    def _factors(self, incoming: Tensor, log_sums: Tensor, *entropy: Tensor) -> Factors:
        """Return what the gradient of each row is made of."""
        rows, wrong = len(self.target), self._wrong
        if entropy:
            of_token, of_entropy = incoming
            of_all = -of_token - of_entropy * entropy[0]
            return Factors(of_all.masked_fill(wrong, torch.nan), -of_token, -of_entropy)
        incoming = incoming.expand(rows) if incoming.dim() == 0 else incoming
        if self._ignored is not None:
            incoming = incoming.masked_fill(self._ignored, 0.0)
        _, smoothing, _, _, z_loss, _ = self.settings
        of_own = self._weighted(incoming, self.target) * (1 - smoothing)
        of_all, of_share = of_own, None
        if smoothing:
            of_share = incoming * (smoothing / self.classes)
            total = self.classes if self.class_weight is None else self.class_weight.sum()
            of_all = of_all + of_share * total
        if z_loss:
            of_all = of_all + incoming * (2 * z_loss) * log_sums
        return Factors(of_all.masked_fill(wrong, torch.nan), of_own, None, of_share)

    # What all plans have in common.

    def composed(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return the losses by operators that are differentiable twice, of all logits at once."""
        logits, loss = linear(hidden, weight, bias), torch.ops.losscli
        settings = self.settings
        found: Tensor
        if not settings.entropy:
            rest = (self.class_weight, self.reduction, *map(float, settings[:5]))
            found = loss.cross_entropy(logits, self.target, *rest)
            return found
        logits = logits / settings.temperature
        if settings.softcap:
            logits = settings.softcap * torch.tanh(logits / settings.softcap)
        found = loss.token_log_probs(logits, self._known(self.target), "none", 1.0, 1.0)
        return found

    def _log_sums(self, logits: Tensor) -> Tensor | None:
        if not self.with_log_sums:
            return None
        return Sums.of(Bent.of(logits, self.settings), finite=False).log

    def _joined(self, parts: list[Any]) -> Tensor | None:
        return torch.cat(parts) if parts and parts[0] is not None else None

    def _reduced(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses as they are asked for, and what that multiplies gradients by."""
        if self.reduction == "none":
            return losses, losses.new_ones(())
        total = losses.sum(dtype=torch.float64)
        if self.reduction == "sum":
            return total.to(losses.dtype), losses.new_ones(())
        counted = self._weighted(losses.new_ones(len(losses)), self.target)
        if self._ignored is not None:
            counted = counted.masked_fill(self._ignored, 0.0)
        count = counted.sum(dtype=torch.float64)
        return (total / count).to(losses.dtype), (1 / count).to(losses.dtype)

    def _weighted(self, values: Tensor, target: Tensor) -> Tensor:
        """Return numbers of rows times the weights of their classes."""
        if self.class_weight is None:
            return values
        return values * self.class_weight.to(values.dtype)[self._known(target)]

    def _counted(self, target: Tensor) -> Tensor:
        """Return class numbers, in place of those that are ignored the first."""
        if not self.may_ignore:
            return target
        return torch.where(target == self.settings.ignore_index, 0, target)

    def _known(self, target: Tensor) -> Tensor:
        """Return class numbers, in place of those that are none the first."""
        return torch.where((target < 0) | (target >= self.classes), 0, target).long()

    @cached_property
    def _ignored(self) -> Tensor | None:
        return self.target == self.settings.ignore_index if self.may_ignore else None

    @cached_property
    def _wrong(self) -> Tensor:
        wrong = (self.target < 0) | (self.target >= self.classes)
        return wrong if self._ignored is None else wrong & ~self._ignored


def _parts(count: int, size: int) -> Iterator[slice]:
    """Yield slices of so many things of ``count``, the last of what is left; at least one."""
    for first in range(0, max(count, 1), size):
        yield slice(first, min(first + size, count))


def _are_finite(logits: Tensor, bias: Tensor | None) -> bool:
    """Tell whether logits are of 16 bits and no bias makes any infinite, to leave classes out."""
    return bias is None and logits.dtype == torch.bfloat16


def _power(factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what factors are divided by, so that a float16 holds them: a power of two."""
    if dtype != torch.float16:
        return factors.new_ones(())
    largest = factors.abs().nan_to_num(0.0, 0.0).amax() if factors.numel() else factors.new_ones(())
    return torch.exp2(torch.floor(torch.log2(torch.where(largest == 0, 1.0, largest))))


def _weight_gradient(gradient: Tensor, hidden: Tensor, power: Tensor, to: Tensor) -> None:
    """Write one product over all rows: nothing is added up in 16 bits."""
    if gradient.dtype != torch.float16:
        torch.mm(gradient.t(), hidden, out=to)
        return
    for classes in _parts(gradient.shape[1], max(gradient.shape[1] // 8, 128)):
        to[classes] = products.wide(gradient[:, classes].t(), hidden).mul_(power)


def _scaled(
    incoming: Tensor, kept: Kept, like: tuple[Tensor, Tensor, Tensor | None], wanted: Any
) -> Gradients:
    """Return gradients that forward made, times what has come in."""
    *gradients, factor = kept
    by = incoming * factor
    found = [
        (gradient * by).to(operand.dtype) if wants and operand is not None else None
        for gradient, operand, wants in zip(gradients, like, wanted, strict=True)
    ]
    return found[0], found[1], found[2]


class Losses(torch.autograd.Function):
    """The losses of a :class:`Work`; second derivatives are those of PyTorch's operators."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, work: Work
    ) -> tuple[Tensor, Tensor | None]:
        """Compute the losses, and of the gradients what the plan makes at once."""
        losses, log_sums, kept = work.forward(hidden, weight, bias, ctx.needs_input_grad[:3])
        ctx.work = work
        ctx.save_for_backward(hidden, weight, bias, *kept)
        if log_sums is not None:
            ctx.mark_non_differentiable(log_sums)
        return losses, log_sums

    @staticmethod
    def backward(ctx: Any, incoming: Tensor, _: Any) -> tuple[Any, ...]:
        """Compute the gradients."""
        hidden, weight, bias, *kept = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if not torch.is_grad_enabled():
            found = ctx.work.backward(incoming, hidden, weight, bias, tuple(kept), wanted)
            return (*found, None)
        operands = (hidden, weight, bias)
        losses = ctx.work.composed(*operands)
        places = [k for k, wants in enumerate(wanted) if wants]
        found = torch.autograd.grad(
            losses, [operands[k] for k in places], incoming.to(losses.dtype), create_graph=True
        )
        return (*(found[places.index(k)] if k in places else None for k in range(3)), None)
