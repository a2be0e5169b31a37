"""The magnitudes at which errors of losses over rows are measured: losscli/truth/tolerances.py.

A probability is ``exp(x / T - lse)``: beside its own roundings its exponent ``e`` is rounded, which
moves it by ``abs(e)`` ULP, a quarter of which the bar of 4 ULP multiplies again; where a
temperature divides, the quotient is rounded as well. Below the smallest normal number of its dtype
a probability is rounded as that number is, and what multiplies it multiplies this. A logarithm of
one is a difference of ``x / T`` and ``lse``, which is rounded beside 1, as the sum of exponentials
is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..spec import LOSS, LazyTerms, Tolerance

if TYPE_CHECKING:
    import torch
    from torch import Tensor

OF_LENGTHS = Tolerance(1.5, "the root of a length and the quotient by it add two roundings to four")


def known(terms: Tensor) -> Tensor:
    """Return magnitudes, with 0 for those that are no numbers: 0 times infinity among them."""
    return terms.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Softmax:
    """The probabilities of rows of logits, and the magnitudes of what they are computed from."""

    probability: Tensor
    log: Tensor
    size: Tensor
    """The magnitude of the terms of a logarithm."""
    weight: Tensor
    """A probability with what the rounding of its exponent adds to it."""

    @classmethod
    def of(cls, logits: Tensor, temperature: float, *, computed: bool = False) -> Softmax:
        """Return those of logits along the last dimension.

        ``computed``: whether the logits are rounded themselves, which moves the logarithm of their
        sum as well.
        """
        import torch

        scaled = logits / temperature
        log = torch.log_softmax(scaled, -1)
        probability = log.exp()
        lse = torch.logsumexp(scaled, -1, keepdim=True)
        of_sum = (probability * scaled.abs()).nansum(-1, keepdim=True)
        of_sum = of_sum.fmax(lse.abs()).clamp(min=1.0)
        exponent = (lse - scaled).abs()
        if computed or temperature != 1:
            exponent = exponent + 2 * (scaled.abs() + of_sum if computed else scaled.abs())
        weight = known(probability * (1 + exponent / 4))
        # What is less than half the smallest number of a dtype is lost as a whole.
        for dtype in (torch.float32, torch.float64):
            limits = torch.finfo(dtype)
            weight = weight.fmax((probability / limits.eps).clamp(max=limits.tiny))
        return cls(probability, log, of_sum.fmax(scaled.abs()), weight)

    def error(self, dtype: torch.dtype, ulp: float) -> Tensor:
        """Return by how much the probabilities may be off when computed in a dtype.

        With ``u`` half the spacing of the dtype at 1: the exponent is ``x / T - lse``. The factor
        ``1 / T``, the product with it, and ``lse`` are rounded at magnitudes of ``size`` at most,
        the difference at its own: ``(3 * size + abs(log)) * u`` of the probability. The
        exponential, the quotient by the sum and the sum itself lose ``ulp`` units in the last
        place, of ``2 * u`` each. Below the smallest normal number all of these are as at that. In
        float64 the oracle is off by as much itself.
        """
        import torch

        limits = torch.finfo(dtype)
        roundings = 2 * ulp + 3 * self.size + self.log.abs()
        own = known(self.probability.clamp(min=limits.tiny) * roundings) * (limits.eps / 2)
        return 2 * own if dtype == torch.float64 else own


@dataclass(frozen=True)
class WeightedSum:
    """The sum over a row of probabilities times values, whose terms have magnitudes."""

    of: Softmax
    value: Tensor
    size: Tensor

    @property
    def _rounding(self) -> Tensor:
        """What the exponents of the probabilities add to them."""
        return self.of.weight - self.of.probability

    @property
    def total(self) -> Tensor:
        """The magnitude of the sum."""
        found = self.of.probability * self.size
        return known(found + self._rounding * self.value.abs()).sum(-1)

    @property
    def slope(self) -> Tensor:
        """The magnitude of the derivative for ``x / T``: ``p * (value - sum of p * value)``."""
        total = self.total.unsqueeze(-1)
        found = self.of.probability * known(self.size).fmax(total)
        mean = known(self.of.probability * self.value).sum(-1, keepdim=True)
        return known(found + self._rounding * (self.value - mean).abs())


def divergence_terms(
    summed: WeightedSum, other: Softmax, names: tuple[str, str], temperature: float
) -> Mapping[str, Tensor]:
    """Return the terms of a weighted sum of differences of logarithms.

    Args:
        summed: the sum over a row.
        other: the distribution whose logarithm is in it; its derivative is that less the weights.
        names: of the operands, of the weights' first.
        temperature: divides the logits.
    """
    own, others = names
    return LazyTerms(
        {
            LOSS: lambda: summed.total,
            own: lambda: summed.slope / temperature,
            # Each of the two is off by the rounding of its own exponent.
            others: lambda: (other.weight + summed.of.weight) / temperature,
        }
    )


def masked(terms: Mapping[str, Tensor], mask: Tensor | None) -> Mapping[str, Tensor]:
    """Return terms that are 0 in the rows that do not count, where every error is to show."""
    if mask is None:
        return terms

    def kept(name: str) -> Tensor:
        found = terms[name]
        rows = mask if found.dim() == mask.dim() else mask.unsqueeze(-1)
        return found * rows

    return LazyTerms({name: lambda name=name: kept(name) for name in terms})  # type: ignore[misc]


def cosine_terms(
    names: tuple[str, str], first: Tensor, second: Tensor, norms: tuple[Tensor, Tensor], eps: float
) -> Mapping[str, Tensor]:
    """Return the terms of the cosine of two rows and of its gradients.

    Args:
        names: of the two operands.
        first: the one.
        second: the other.
        norms: of the two, ``(..., 1)``.
        eps: the least norm, from which on a norm has a derivative.
    """
    product = norms[0] * norms[1]
    cosine = (first * second).abs().sum(-1, keepdim=True) / product

    def slope(own: Tensor, other: Tensor, norm: Tensor) -> Tensor:
        of_norm = cosine * own.abs() / norm**2 * (norm > eps)
        return (other.abs() / product).fmax(of_norm)

    return LazyTerms(
        {
            LOSS: lambda: cosine.squeeze(-1),
            names[0]: lambda: slope(first, second, norms[0]),
            names[1]: lambda: slope(second, first, norms[1]),
        }
    )
