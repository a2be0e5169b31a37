"""Magnitudes that errors of row-wise losses are relative to; see losscli/truth/tolerances.py.

A probability is ``exp(x / T - lse)``. Rounding its exponent ``e`` moves it by ``abs(e)`` ulp; a
quarter of that enters here, because the tolerance multiplies it by 4. A temperature adds the
rounding of the quotient. A logarithm is a difference of ``x / T`` and ``lse``, which is rounded
relative to 1, as its sum of exponentials is.
"""

from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from losscli.machine.pytorch import Tensor, torch

from ..fields import LOSS, Tolerance
from .spec import VECTORS

OF_VECTORS: dict[str, Any] = {
    "holds": VECTORS,
    "squares": True,
    "temporaries": 6,
    "tolerance": Tolerance(
        1.5, "the root of a length and the quotient by it add two roundings to four"
    ),
}
"""What specs of losses of lengths have in common."""


class LazyTerms(UserDict[str, Any]):
    """Terms that are computed on access."""

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = self.data[name]()
        return found


def known(terms: Tensor) -> Tensor:
    """Replace NaN, such as 0 times infinity, and infinity by 0."""
    return terms.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Softmax:
    """Softmax probabilities of rows, and the magnitudes of their terms."""

    probability: Tensor
    log: Tensor
    size: Tensor
    """The magnitude of a logarithm's terms."""
    weight: Tensor
    """A probability plus the rounding of its exponent."""

    @classmethod
    def of(cls, logits: Tensor, temperature: float, *, computed: bool = False) -> Self:
        """Return the softmax along the last dimension; ``computed``: the logits are rounded too."""
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
        # Anything below half a dtype's smallest number is lost.
        for dtype in (torch.float32, torch.float64):
            limits = torch.finfo(dtype)
            weight = weight.fmax((probability / limits.eps).clamp(max=limits.tiny))
        return cls(probability, log, of_sum.fmax(scaled.abs()), weight)

    def error(self, dtype: "torch.dtype", ulp: float) -> Tensor:
        """Return how far probabilities may be off in a dtype.

        With ``u`` half the spacing at 1, the exponent ``x / T - lse`` is off by ``(3 * size +
        abs(log)) * u``: for ``1 / T``, the product, ``lse`` and the difference. The exponential,
        the sum and the quotient lose ``ulp`` units of ``2 * u``. In float64 the oracle is off as
        much.
        """
        limits = torch.finfo(dtype)
        roundings = 2 * ulp + 3 * self.size + self.log.abs()
        own = known(self.probability.clamp(min=limits.tiny) * roundings) * (limits.eps / 2)
        return 2 * own if dtype == torch.float64 else own


@dataclass(frozen=True)
class WeightedSum:
    """The row sums of probabilities times values."""

    of: Softmax
    value: Tensor
    size: Tensor

    @property
    def _rounding(self) -> Tensor:
        return self.of.weight - self.of.probability

    @property
    def total(self) -> Tensor:
        """The magnitude of the sum."""
        found = self.of.probability * self.size
        return known(found + self._rounding * self.value.abs()).sum(-1)

    @property
    def slope(self) -> Tensor:
        """The magnitude of the derivative for ``x / T``: ``p * (value - sum of p * value)``."""
        found = self.of.probability * known(self.size).fmax(self.total.unsqueeze(-1))
        mean = known(self.of.probability * self.value).sum(-1, keepdim=True)
        return known(found + self._rounding * (self.value - mean).abs())


def divergence_terms(
    summed: WeightedSum, other: Softmax, names: tuple[str, str], temperature: float
) -> LazyTerms:
    """Return the terms of a weighted sum of differences of logarithms.

    ``names`` are the operands of the weights and of the ``other`` distribution.
    """
    own, others = names
    return LazyTerms(
        {
            LOSS: lambda: summed.total,
            own: lambda: summed.slope / temperature,
            # Each of the two has its own exponent's rounding.
            others: lambda: (other.weight + summed.of.weight) / temperature,
        }
    )


def masked(terms: LazyTerms, mask: Tensor | None) -> LazyTerms:
    """Zero the terms of masked rows, where any error must show."""
    if mask is None:
        return terms

    def kept(name: str) -> Tensor:
        found = terms[name]
        rows = mask if found.dim() == mask.dim() else mask.unsqueeze(-1)
        return found * rows

    return LazyTerms({name: partial(kept, name) for name in terms})


def cosine_terms(
    rows: Mapping[str, Tensor],
    norms: tuple[Tensor, Tensor],
    eps: float,
    of_loss: Callable[[Tensor], Tensor],
) -> LazyTerms:
    """Return the terms of a loss of the cosine of two rows, and of its gradients.

    ``norms`` are ``(..., 1)``; those above ``eps`` have a derivative. ``of_loss`` returns the
    loss's terms from the cosine's.
    """
    (one, first), (other, second) = rows.items()
    product = norms[0] * norms[1]
    cosine = (first * second).abs().sum(-1, keepdim=True) / product

    def slope(own: Tensor, other: Tensor, norm: Tensor) -> Tensor:
        of_norm = cosine * own.abs() / norm**2 * (norm > eps)
        return (other.abs() / product).fmax(of_norm)

    return LazyTerms(
        {
            LOSS: lambda: of_loss(cosine.squeeze(-1)),
            one: lambda: slope(first, second, norms[0]),
            other: lambda: slope(second, first, norms[1]),
        }
    )
