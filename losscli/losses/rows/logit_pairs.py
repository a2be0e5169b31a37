"""Divergences of the softmax p of the input and q of the target, with temperature and mask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments
from ..fields import LOSS, Operand, Parameter, Relations, Terms, Tolerance
from ..formulas import always, at_least_float32, reduce, weighted_sum
from ..making import OF_COUNTED, row_loss
from .forms import temperature_of
from .spec import ROW_MASK, RowSpec, counts_of_mask
from .terms import LazyTerms, Softmax, WeightedSum, divergence_terms, known, masked

TEMPERATURE = temperature_of("both sets of logits")
OPERANDS = (Operand("input", "logits"), Operand("target", "logits"), ROW_MASK)

REASON = "a divergence is a sum of differences of logarithms, its gradients of probabilities"
TOLERANCE = Tolerance(
    1.5, "the product of a probability and a difference adds two roundings to four"
)

ARGUMENTS = {
    "input": "logits, ``(..., C)`` for C classes; differentiable. A logit of -inf has a "
    "probability of 0, and 0 times infinity is 0.",
    "target": "logits of the same shape; differentiable.",
    "temperature": "divides both sets of logits; above 0.",
    "reduction": OF_COUNTED,
}


def _function(name: str, docstring: str) -> Callable[..., Arguments]:
    def arguments(
        input: Tensor,
        target: Tensor,
        *,
        temperature: float = 1.0,
        mask: Tensor | None = None,
        reduction: str = "mean",
    ) -> Arguments:
        return Arguments((input, target, mask), reduction, (temperature,))

    arguments.__name__ = arguments.__qualname__ = name
    arguments.__doc__ = docstring
    return arguments


def _divergence_loss(
    arguments: Callable[..., Arguments],
    module: str,
    divergence: Callable[..., Tensor],
    terms: Callable[..., LazyTerms],
    *,
    parameters: tuple[Parameter, ...] = (TEMPERATURE,),
    **fields: Any,
) -> RowSpec:
    return row_loss(
        arguments,
        module,
        common=ARGUMENTS,
        operands=OPERANDS,
        parameters=parameters,
        reference=partial(_reference, divergence),
        counts=counts_of_mask,
        terms=Terms(partial(_terms, terms), REASON),
        tolerance=TOLERANCE,
        **fields,
    )


def _reference(
    divergence: Callable[..., Tensor],
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reduction: str,
    temperature: float = 1.0,
    **settings: float,
) -> Tensor:
    (first, second), dtype = at_least_float32(input, target)
    if mask is not None:
        # A masked row's values must not reach a gradient, not even as 0 times infinity.
        kept = mask.unsqueeze(-1)
        first, second = (
            torch.where(kept, each, torch.zeros_like(each)) for each in (first, second)
        )
    log_p, log_q = (torch.log_softmax(each / temperature, -1) for each in (first, second))
    loss = divergence(log_p, log_q, **settings)
    if mask is None:
        return reduce(loss, reduction).to(dtype)
    loss = torch.where(mask, loss, torch.zeros_like(loss))
    loss = loss.sum() / mask.sum() if reduction == "mean" else reduce(loss, reduction)
    return loss.to(dtype)


def _terms(
    of: Callable[..., LazyTerms],
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float = 1.0,
    **settings: float,
) -> LazyTerms:
    pair = Softmax.of(input, temperature), Softmax.of(target, temperature)
    return masked(of(*pair, temperature, **settings), mask)


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return weighted_sum(log_q.exp(), log_q - log_p)


def kl_terms(
    p: Softmax, q: Softmax, temperature: float, names: tuple[str, str] = ("target", "input")
) -> LazyTerms:
    """Return the terms of ``_kl``; ``names`` are the operands of q and p."""
    surprise = WeightedSum(q, q.log - p.log, q.size.fmax(p.size))
    return divergence_terms(surprise, p, names, temperature)


KL_DIVERGENCE = _divergence_loss(
    _function(
        "kl_divergence",
        """Kullback-Leibler divergence of ``softmax(input / T)`` from ``softmax(target / T)``.

        With p and q these two, a row's loss is the sum of ``q * log(q / p)``: distillation of a
        student's logits from a teacher's (Hinton et al. 2015, arXiv:1503.02531, without its factor
        T^2).
        """,
    ),
    "KLDivergenceLoss",
    _kl,
    kl_terms,
    formula="sum of q * log(q / p), p = softmax(x / T), q = softmax(y / T)",
    temporaries=9,
    part_values=5,
    relations=Relations(always, reordered=True, mirror="reverse_kl_divergence"),
)
REVERSE_KL_DIVERGENCE = _divergence_loss(
    _function(
        "reverse_kl_divergence",
        """Kullback-Leibler divergence of ``softmax(target / T)`` from ``softmax(input / T)``.

        With q and p these two, a row's loss is the sum of ``p * log(p / q)``, which seeks a mode of
        the target (MiniLLM, Gu et al. 2023, arXiv:2306.08543).
        """,
    ),
    "ReverseKLDivergenceLoss",
    lambda log_p, log_q: _kl(log_q, log_p),
    lambda p, q, temperature: kl_terms(q, p, temperature, ("input", "target")),
    header="kl_divergence",
    formula="sum of p * log(p / q), p = softmax(x / T), q = softmax(y / T)",
    temporaries=9,
    relations=Relations(always, reordered=True, mirror="kl_divergence"),
)
SOFT_CROSS_ENTROPY = _divergence_loss(
    _function(
        "soft_cross_entropy",
        """Cross entropy of ``softmax(input / T)`` and ``softmax(target / T)``.

        With p and q these two, a row's loss is minus the sum of ``q * log(p)`` (Hinton et al. 2015,
        arXiv:1503.02531, without its factor T^2).
        """,
    ),
    "SoftCrossEntropyLoss",
    lambda log_p, log_q: -weighted_sum(log_q.exp(), log_p),
    lambda p, q, temperature: divergence_terms(
        WeightedSum(q, -p.log, p.size), p, ("target", "input"), temperature
    ),
    header="kl_divergence",
    formula="-(sum of q * log(p)), p = softmax(x / T), q = softmax(y / T)",
    temporaries=8,
    relations=Relations(always, reordered=True, distance="kl_divergence"),
)


def _variation_terms(p: Softmax, q: Softmax, temperature: float) -> LazyTerms:
    # The derivative of p is p times (sign - expected sign).
    sign = (p.probability - q.probability).sign()
    of_p, of_q = (WeightedSum(each, sign, torch.ones_like(sign)) for each in (p, q))
    return LazyTerms(
        {
            LOSS: lambda: p.weight.fmax(q.weight).sum(-1) / 2,
            "input": lambda: of_p.slope / (2 * temperature),
            "target": lambda: of_q.slope / (2 * temperature),
        }
    )


def _from_kinks(
    input: Tensor, target: Tensor, mask: Tensor | None = None, *, temperature: float = 1.0
) -> tuple[Tensor, ...]:
    log_p, log_q = (torch.log_softmax(each / temperature, -1) for each in (input, target))
    # Moving a logit away from a tie moves the row's other probabilities.
    return (temperature * (log_p - log_q),) * 3


def _undecided(
    input: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    dtype: torch.dtype,
    ulp: float,
    temperature: float = 1.0,
) -> LazyTerms:
    """Return how far rounding may move derivatives where p and q nearly agree.

    A kernel takes the sign of a difference of rounded probabilities. Within both errors, any sign
    is right, unless the logits are equal. The derivative for ``x`` is ``p * (sign - sum of p *
    sign) / (2 * T)``. An undecided sign changes by up to 2, and the sum by ``2 * p``, so the error
    is at most ``p * (2 [if undecided] + sum of 2 * p over the undecided) / (2 * T)``, likewise with
    q for the target.
    """
    p, q = Softmax.of(input, temperature), Softmax.of(target, temperature)
    difference = (p.probability - q.probability).abs()
    is_close = difference <= p.error(dtype, ulp) + q.error(dtype, ulp)
    moved = 2 * (is_close & (input != target).any(-1, keepdim=True)).to(input.dtype)

    def of(own: Tensor) -> Tensor:
        return known(own * (moved + (own * moved).sum(-1, keepdim=True)) / (2 * temperature))

    return masked(
        LazyTerms({"input": lambda: of(p.probability), "target": lambda: of(q.probability)}), mask
    )


TOTAL_VARIATION = _divergence_loss(
    _function(
        "total_variation",
        """Total variation distance of ``softmax(input / T)`` and ``softmax(target / T)``.

        With p and q these two, a row's loss is half the sum of ``|p - q|`` (Wen et al. 2023,
        arXiv:2307.15190). Where ``p = q`` the derivative of the absolute value is 0.
        """,
    ),
    "TotalVariationLoss",
    lambda log_p, log_q: (log_p.exp() - log_q.exp()).abs().sum(-1) / 2,
    _variation_terms,
    formula="sum of |p - q| / 2, p = softmax(x / T), q = softmax(y / T)",
    temporaries=8,
    relations=Relations(always, reordered=True, mirror="total_variation"),
    from_kinks=_from_kinks,
    undecided=_undecided,
)


def _mixture(log_q: Tensor, log_p: Tensor, *, beta: float) -> Tensor:
    p, q = log_p.exp(), log_q.exp()
    m = beta * p + (1 - beta) * q
    log_m = torch.where(m == 0, torch.ones_like(m), m).log()
    return beta * weighted_sum(p, log_p - log_m) + (1 - beta) * weighted_sum(q, log_q - log_m)


def _mixture_terms(q: Softmax, p: Softmax, temperature: float, *, beta: float) -> LazyTerms:
    m = beta * p.probability + (1 - beta) * q.probability
    # A logarithm moves by its argument's relative error.
    size = m.log().abs().fmax((beta * p.weight + (1 - beta) * q.weight) / m)
    of_p = WeightedSum(p, p.log - m.log(), p.size.fmax(size))
    of_q = WeightedSum(q, q.log - m.log(), q.size.fmax(size))
    return LazyTerms(
        {
            LOSS: lambda: beta * of_p.total + (1 - beta) * of_q.total,
            "input": lambda: (1 - beta) * of_q.slope / temperature,
            "target": lambda: beta * of_p.slope / temperature,
        }
    )


def js_divergence(
    input: Tensor,
    target: Tensor,
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Generalised Jensen-Shannon divergence of two sets of logits.

    With p the softmax of ``target / T``, q of ``input / T`` and ``m = beta * p + (1 - beta) * q``,
    a row's loss is ``beta * sum of p * log(p / m) + (1 - beta) * sum of q * log(q / m)`` (Agarwal
    et al. 2023, arXiv:2306.13649: p is the teacher's, q the student's).
    """
    return Arguments((input, target, mask), reduction, (temperature, beta))


JS_DIVERGENCE = _divergence_loss(
    js_divergence,
    "JSDivergenceLoss",
    _mixture,
    _mixture_terms,
    parameters=(
        TEMPERATURE,
        Parameter("beta", 0.5, 0.0, "the target's part of the mixture", 0.3, 1.0, open=True),
    ),
    formula="b * sum of q * log(q / m) + (1 - b) * sum of p * log(p / m), m = b * q + (1 - b) * p",
    temporaries=14,
    relations=Relations(
        always,
        reordered=True,
        mirror="js_divergence",
        mirrored=lambda parameters: {**parameters, "beta": 1 - parameters["beta"]},
    ),
)
