"""The oracle of fused linear losses: float64 cross entropy streamed over rows and classes.

It also bounds how far roundings may move each result (see ``tolerances``). The derivatives of the
spec's ``logits``, which autograd gives, are rounded once, and move with the product.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from losscli.implementations.local import Operands
from losscli.linear.kernels import Settings
from losscli.losses import LinearSpec
from losscli.losses.rows.forms import ignored_index
from losscli.truth import tolerances
from losscli.truth.blocks import logits_block_elements, whole
from losscli.truth.distances import Errors, Truth
from losscli.truth.linear_gradients import Gradient, GradientSum, Slope
from losscli.truth.oracle import Oracle, Truths, exact_sum
from losscli.truth.tolerances import ELEMENT_ULP, Outcome, finite, unit_roundoff


class _Logits(NamedTuple):
    """Some rows' float64 logits after temperature and softcap, and how far they may move."""

    value: Tensor
    slope: Tensor | float
    """Their derivative by the logits before temperature and softcap."""
    moved: Tensor
    """How far roundings move them."""
    slope_moved: Tensor | float
    """How far that moves their derivative."""
    slopes: dict[str, Slope]
    """The earlier logits' derivatives by arguments of the spec's ``logits``, where not 1."""


@dataclass(frozen=True)
class LinearOracle(Oracle):
    """The oracle of a fused linear loss."""

    @cached_property
    def divisor(self) -> float:
        return float(len(self._counted)) if self.case.reduction == "mean" else 1.0

    def is_summed(self, name: str) -> bool:
        return False

    @property
    def keeps_truths(self) -> bool:
        return True

    def judge_as_a_whole(self, outcome: Outcome, errors: Errors, truths: Truths) -> Outcome:
        once = next((truth.once_rounded for truth in truths()), None)
        return outcome if once is None else tolerances.judge_as_a_whole(errors, once)

    def value(self) -> Iterator[Truth]:
        """Yield the loss, whole."""
        value = torch.zeros(self._numbers.numel(), dtype=torch.float64, device=self.device)
        rounding = torch.zeros_like(value)
        for place in self._blocks_of_rows():
            logits = self._logits(place)
            value[place], rounding[place] = self._losses(logits, self._numbers[place])
        if self.case.reduction == "none":
            shape = self.unreduced_shape
            yield Truth(whole(shape), value.view(shape), rounding=rounding.view(shape))
            return
        sums = [exact_sum(each) for each in (value, value.abs(), rounding)]
        totals = torch.tensor(sums, dtype=torch.float64, device=self.device) / self.divisor
        yield Truth((), totals[0], totals[1], rounding=totals[2])

    def gradients(self, names: Sequence[str], grad_output: Tensor) -> dict[str, Iterable[Truth]]:
        hidden, _, weight, *others = self.case.spec.operands
        layer = hidden.name, weight.name
        over_tokens = {weight.name, *(each.name for each in others if each.shared)}
        found = {name: GradientSum(self.operands[name], is_matrix=name in layer) for name in names}
        for place in self._blocks_of_rows():
            of = self._gradients_of_logits(place, grad_output)
            for name, total in found.items():
                gradient = of["product" if name in layer else name]
                if name in over_tokens:
                    gradient = gradient.summed(len(self._counted), self._rounding).changed(Tensor.t)
                else:
                    gradient = gradient.summed_over_classes(self._rounding)
                if name not in layer:
                    ones = torch.ones_like(gradient.value[:1]).t()  # its rows are added up
                    total.add(gradient, ones, slice(None) if name in over_tokens else place)
                    continue
                for part in self._blocks_of_classes():
                    if name == weight.name:
                        own = gradient.changed(itemgetter(part))
                        total.add(own, self._hidden_rows[place], part)
                    else:
                        own = gradient.changed(itemgetter((slice(None), part)))
                        total.add(own, self._weight[part], place)
        return {name: each.truths() for name, each in found.items()}

    @property
    def _hidden_rows(self) -> Tensor:
        return self.prediction.detach().reshape(self._numbers.numel(), self.shape[-1])

    @cached_property
    def _numbers(self) -> Tensor:
        return self.operands[self.case.spec.names[1]].reshape(-1).long()

    @property
    def _weight(self) -> Tensor:
        return self.operands[self.case.spec.names[2]].detach()

    @cached_property
    def _counted(self) -> Tensor:
        ignored = ignored_index(self.case.params)
        kept = torch.ones_like(self._numbers, dtype=torch.bool)
        return (kept if ignored is None else self._numbers != ignored).nonzero().squeeze(1)

    @property
    def _settings(self) -> Settings:
        given: Mapping[str, Any] = self.case.params
        return Settings(**{name: x for name, x in given.items() if name in Settings._fields})

    @property
    def _rounding(self) -> float:
        """The rounding of float32 sums; in float64 the oracle rounds too."""
        wide = self.prediction.dtype == torch.float64
        return 2 * unit_roundoff(torch.float64) if wide else unit_roundoff(torch.float32)

    def _most(self, length: int) -> int:
        return max(logits_block_elements(self.device.type) // max(length, 1), 1)

    def _blocks_of_rows(self) -> Iterator[Tensor]:
        yield from self._counted.split(self._most(len(self._weight))) if len(self._counted) else ()

    def _blocks_of_classes(self) -> Iterator[slice]:
        classes, most = len(self._weight), self._most(self.shape[-1])
        yield from (slice(at, min(at + most, classes)) for at in range(0, classes, most))

    def _logits(self, place: Tensor, *, rounded: bool = False) -> _Logits:
        """Return some rows' logits, ``rounded`` to the hidden states' dtype."""
        wide = self._hidden_rows[place].double()
        value = wide.new_empty((len(place), len(self._weight)))
        moved = torch.empty_like(value)
        for part in self._blocks_of_classes():
            weight = self._weight[part].double().t()
            value[:, part] = wide @ weight
            moved[:, part] = wide.abs() @ weight.abs()
        moved *= tolerances.product_roundings(self.shape[-1]) * self._rounding
        unit = max(unit_roundoff(self.prediction.dtype), self._rounding)
        value, moved, slopes = self._adjusted(value, moved, place, unit)
        moved += unit * value.abs()
        if rounded:
            value = value.to(self.prediction.dtype).double()
        temperature, cap = self._settings.temperature, self._settings.softcap
        value, moved = value / temperature, finite(moved / temperature)
        slope: Tensor | float = 1 / temperature
        slope_moved: Tensor | float = 0.0
        if cap:
            value, share = torch.tanh(value / cap), moved / cap
            slope = (1 - value**2) / temperature
            slope_moved = 2 * value.abs() * share + share**2 + ELEMENT_ULP * self._rounding
            slope_moved = slope_moved / temperature
            value = value * cap
        moved = moved + ELEMENT_ULP * self._rounding * value.abs()
        return _Logits(value, slope, finite(moved), slope_moved, slopes)

    def _adjusted(
        self, product: Tensor, moved: Tensor, place: Tensor, unit: float
    ) -> tuple[Tensor, Tensor, dict[str, Slope]]:
        """Return the logits that the spec makes of a product, how far they move, and slopes."""
        others: Operands = {}
        for each in self.case.spec.operands[3:]:
            own = self.operands[each.name].detach().double()
            others[each.name] = own if each.shared else own.reshape(-1, 1)[place]
        if not others:
            return product, moved, {}
        leaves = [x.expand_as(product).requires_grad_() for x in (product, *others.values())]
        with torch.enable_grad():
            value = self._spec.logits(leaves[0], **dict(zip(others, leaves[1:], strict=True)))
            ones = product.new_ones((), requires_grad=True).expand_as(product)
            found = torch.autograd.grad(value, leaves, ones, create_graph=True)
        slopes = dict[str, Slope]()
        for name, slope in zip(("product", *others), found, strict=True):
            if (slope != 1).any():
                (bent,) = torch.autograd.grad(
                    slope, leaves[0], ones, retain_graph=True, materialize_grads=True
                )
                slopes[name] = slope.detach(), (bent * moved).abs() + unit * slope.detach().abs()
        moved = moved * slopes["product"][0].abs() if "product" in slopes else moved
        for name, x in others.items():
            moved += unit * (x * slopes[name][0] if name in slopes else x).abs()
        return value.detach(), moved, slopes

    def _log_sums(self, logits: _Logits) -> tuple[Tensor, Tensor]:
        found = _log_sums(logits.value)
        moved = torch.logsumexp(logits.value + logits.moved, 1) - found
        summed = tolerances.sum_roundings(logits.value.shape[1])
        rounded = summed + ELEMENT_ULP * found.abs().clamp(min=1.0)
        return found, finite(moved) + self._rounding * finite(rounded)

    def _losses(self, logits: _Logits, numbers: Tensor) -> tuple[Tensor, Tensor]:
        smoothing, z = self._settings.label_smoothing, self._settings.z_loss
        x = logits.value
        log_sums, moved = self._log_sums(logits)
        own = numbers.unsqueeze(1)
        loss = (1 - smoothing) * (log_sums - x.gather(1, own).squeeze(1))
        off = moved + (1 - smoothing) * logits.moved.gather(1, own).squeeze(1)
        if smoothing:
            loss = loss + smoothing * (log_sums - x.mean(1))
            off = off + smoothing * logits.moved.mean(1)
        if z:
            loss = loss + z * log_sums**2
            off = off + z * (2 * log_sums.abs() * moved + moved**2)
        return self._spec.sign * loss, finite(off)

    def _gradients_of_logits(self, place: Tensor, grad_output: Tensor) -> dict[str, Gradient]:
        """Return each element's gradients by the arguments of the spec's ``logits``."""
        incoming = grad_output.detach().double().expand(self.loss_shape()).reshape(-1)
        if self.case.reduction == "none":
            incoming = incoming[place]
        incoming = (incoming / self.divisor * self._spec.sign).expand(len(place)).unsqueeze(1)
        numbers = self._numbers[place].unsqueeze(1)
        logits = self._logits(place)
        value, p, log_sums = self._slopes(logits, numbers)
        log_sums_moved = self._log_sums(logits)[1].unsqueeze(1)
        z = self._settings.z_loss
        # A probability moves with the log-sum-exp and its logit, and is at most 1. It loses at most
        # what others gain: all of it if another logit is nearly equal.
        logs, off = logits.value - log_sums, logits.moved + log_sums_moved
        most = (logs + off).clamp_(max=0.0).exp_()
        least = logs.sub_(off).exp_()
        gains = most - p
        loses = torch.minimum(p - least, gains.sum(1, keepdim=True) - gains)
        moved = torch.maximum(gains, loses) * (1 + 2 * z * log_sums.abs())
        moved = moved + most * (2 * z * log_sums_moved)
        # Its two terms and the product with the slope are each rounded.
        terms = (p * (1 + 2 * z * log_sums.abs())).add_((value - p).abs())
        moved = moved + ELEMENT_ULP * self._rounding * terms
        moved = moved * logits.slope + value.abs() * logits.slope_moved
        value = value * logits.slope
        # It and its product with grad_output are rounded to the product's dtype.
        unit = unit_roundoff(self.prediction.dtype)
        moved = moved + 2 * unit * (value.abs() + moved)
        limits = torch.finfo(self.prediction.dtype)
        moved = (moved + limits.tiny * limits.eps) * incoming.abs()
        once = None
        if self.prediction.dtype.itemsize == 2:
            own = self._logits(place, rounded=True)
            rounded = (self._slopes(own, numbers)[0] * own.slope).to(self.prediction.dtype).double()
            once = (rounded - value).mul_(incoming)
            # Where roundings decide which of two classes has a probability, a norm says nothing.
            once[(loses > 0.5).any(1) & (incoming.squeeze(1) != 0)] = math.nan
        found = Gradient(value * incoming, finite(moved), once)
        names = ("product", *self.case.spec.names[3:])
        return {name: found.times(logits.slopes.get(name)) for name in names}

    def _slopes(self, logits: _Logits, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        smoothing, z = self._settings.label_smoothing, self._settings.z_loss
        x = logits.value
        log_sums = _log_sums(x).unsqueeze(1)
        p = torch.softmax(x, 1)  # the exponential of x - log_sums is 1 for each of two huge ones
        value = p * (1 + 2 * z * log_sums) - smoothing / x.shape[1]
        return value.scatter_add_(1, numbers, torch.full_like(x[:, :1], smoothing - 1)), p, log_sums

    @property
    def _spec(self) -> LinearSpec:
        spec = self.case.spec
        assert isinstance(spec, LinearSpec)
        return spec


def _log_sums(x: Tensor) -> Tensor:
    """Return the log-sum-exps of rows; NaN wins over infinity."""
    found = torch.logsumexp(x, 1)
    return found.masked_fill(found == math.inf, math.nan)
