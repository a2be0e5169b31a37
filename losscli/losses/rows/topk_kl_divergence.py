"""Divergence from the k most likely classes of a teacher, with one bin for all others.

The logits of a student become ``k + 1`` bins: those of the k classes, and the logarithm of the sum
of exponentials of all others, which is added up from these others alone. A difference of 1 and the
k probabilities would keep no digit of a small rest. What is left is a divergence of short rows.
``losscli/linear/topk_kl_divergence.py`` composes it of the kernels for rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .. import operators
from ..calling import Arguments
from ..domain import DISTINCT_CLASSES, SHARES
from ..formulas import widened
from ..making import row_loss
from ..parameter import Parameter, switch
from ..spec import LOSS, LazyTerms, Operand, Shape, Terms
from .calls import RowCalls
from .logit_pairs import KL_DIVERGENCE, MASK, REASON, REVERSE_KL_DIVERGENCE, counts, kl_terms
from .relations import Relations, always
from .spec import RowSpec, class_numbers
from .terms import Softmax, known, masked

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_MOST_CLASSES = 16
"""The classes that generated cases know of a teacher, of at least twice as many."""


class _Calls(RowCalls):
    """The calls of a loss that is composed of the kernels of others."""

    def composed(self, given: Arguments) -> Callable[..., Tensor] | None:
        found: Callable[..., Tensor] = operators.OPERATORS["topk_kl_divergence"]
        return found


def _of_known_classes(shape: Shape) -> Shape:
    """The operand has a value for each class that is known of a row's teacher."""
    return *shape[:-1], min((shape[-1] + 1) // 2, _MOST_CLASSES)


def _with_rest(log_probs: Tensor, impossible: Tensor) -> Tensor:
    """Return log-probabilities with that of the rest, in float64 for the digits of a small one.

    Args:
        log_probs: ``(..., k)``.
        impossible: ``(..., 1)``: whether the student's rest is 0. A rest of the teacher that
            rounding may have left is 0 there as well; it would make the divergence infinite.
    """
    import torch

    wide = log_probs.double()
    shares = wide.exp()
    rest = 1 - shares.sum(-1, keepdim=True)
    surprise = (shares * wide).detach().nan_to_num(nan=0.0)  # 0 times infinity is 0
    rounding = _rounding(log_probs.dtype, log_probs.shape[-1], -surprise.sum(-1, keepdim=True))
    least = torch.where(impossible, rounding, 0.0)
    # Harmless where there is no rest, for its gradient is computed there as well.
    positive = rest > least
    log_rest = torch.where(positive, rest, 1.0).log().masked_fill(~positive, -torch.inf)
    return torch.cat([wide, log_rest], -1).to(widened(log_probs.dtype))


def _rounding(dtype: torch.dtype, k: int, entropy: Tensor) -> Tensor:
    """Return by how much the sum of k probabilities of a dtype may differ from 1.

    A log-softmax ``t = (x - max) - log(sum)`` in a dtype with the unit roundoff u is off by ``u *
    |x - max|`` and ``u * |t|`` for its differences, by ``u * log(sum)`` for the logarithm, and by
    what the sum is off by, relative to it: ``u * k`` for the additions, ``2 * u`` for the
    exponentials, and the mean of ``u * |x - max|``. With ``|x - max|`` and ``log(sum)`` at most
    ``|t|``, the probabilities as weights, and H the entropy, all of them together are ``u * (4 * H
    + k + 2)``, at most ``2 * u * (2 * H + k)`` from two classes on; that of one class is exact.
    """
    import torch

    return torch.finfo(dtype).eps * (k + 2 * entropy)


def bins_of(logits: Tensor, classes: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Return the logits over the temperature of the classes, and of all others as one."""
    import torch

    scaled = logits.to(widened(logits.dtype)) / temperature
    if mask is not None:
        scaled = torch.where(mask.unsqueeze(-1), scaled, torch.zeros_like(scaled))
    others = scaled.scatter(-1, classes, -torch.inf)
    # Harmless where no other class is possible: the gradient of logsumexp is NaN there.
    is_empty = (others == -torch.inf).all(-1, keepdim=True)
    rest = others.masked_fill(is_empty, 0.0).logsumexp(-1, keepdim=True)
    return torch.cat([scaled.gather(-1, classes), rest.masked_fill(is_empty, -torch.inf)], -1)


def known_bins(bins: Tensor, target: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return the bins of both; without that of the rest where the teacher knows all classes.

    There are no others then, but for what roundings leave of the teacher's 1.
    """
    largest = bins.detach().amax(-1, keepdim=True)
    impossible = (bins.detach()[..., -1:] - largest).exp() == 0
    target = _with_rest(target, impossible)
    return (bins, target) if bins.shape[-1] <= classes else (bins[..., :-1], target[..., :-1])


def harmless(
    classes: Tensor, target: Tensor, kept: Tensor | None, instead: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the classes in int64, and both harmless in rows that are not kept.

    ``instead``: what the target holds there.
    """
    import torch

    classes = classes.long()
    if kept is None:
        return classes, target
    kept, numbers = kept.unsqueeze(-1), torch.arange(classes.shape[-1], device=classes.device)
    return torch.where(kept, classes, numbers), torch.where(kept, target, instead)


def bins_of_both(
    input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the bins of the student and of the teacher, of which masked rows are harmless."""
    classes, target = harmless(classes, target, mask)
    return known_bins(bins_of(input, classes, mask, temperature), target, input.shape[-1])


def divergence_of(reverse: float) -> RowSpec:
    """Return the divergence of the bins."""
    return REVERSE_KL_DIVERGENCE if reverse else KL_DIVERGENCE


def reference(
    input: Tensor,
    classes: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reduction: str,
    reverse: float = 0.0,
    temperature: float = 1.0,
) -> Tensor:
    """The formula as a person writes it in PyTorch; 16 bits in float32."""
    pair = bins_of_both(input, classes, target, mask, temperature)
    return divergence_of(reverse).reference(*pair, mask, reduction=reduction)


def _counts(
    input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None = None, **_: float
) -> Tensor:
    return counts(input, target, mask)


def _terms(
    input: Tensor,
    classes: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reverse: float = 0.0,
    temperature: float = 1.0,
) -> Mapping[str, Tensor]:
    """Return the terms of the divergence of the bins, and what they are of the operands."""
    import torch

    classes, target = harmless(classes, target, mask)
    bins = known_bins(bins_of(input, classes, mask, temperature), target, input.shape[-1])
    p, q = (Softmax.of(each, 1.0, computed=True) for each in bins)
    pair, names = ((p, q), ("input", "target")) if reverse else ((q, p), ("target", "input"))
    of_bins = kl_terms(pair[1], pair[0], 1.0, names)
    has_rest = bins[0].shape[-1] > classes.shape[-1]

    def of_input() -> Tensor:
        found = of_bins["input"] / temperature
        if not has_rest:
            return torch.zeros_like(input).scatter(-1, classes, found)
        others = Softmax.of(input.scatter(-1, classes, -torch.inf), temperature)
        # A product of two that are each off by a handful of roundings.
        own = 2 * found[..., -1:] * known(others.weight)
        return own.scatter(-1, classes, found[..., :-1])

    def of_target() -> Tensor:
        found = of_bins["target"]
        if not has_rest:
            return found
        # The derivative of the logarithm of the rest is -q over the rest.
        moved = known(target.exp() * (found / q.probability)[..., -1:])
        return found[..., :-1] + moved

    terms = LazyTerms({LOSS: lambda: of_bins[LOSS], "input": of_input, "target": of_target})
    return masked(terms, mask)


def topk_kl_divergence(
    input: Tensor,
    classes: Tensor,
    target: Tensor,
    *,
    reverse: bool = False,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: str = "mean",
) -> Arguments:
    """Kullback-Leibler divergence over k classes of a teacher, and one bin for all others.

    With p the softmax of ``input / T`` and q the teacher's distribution, of which ``target`` has
    the logarithms for k classes, a row's loss is the sum of ``q * log(q / p)`` over these classes
    and the bin, whose q and p are 1 less those of the classes; with ``reverse`` that of
    ``p * log(p / q)``. It is the divergence of all classes after the others have become one, and so
    never more than that. 0 times infinity is 0.

    The q of the bin is 1 less a sum of rounded probabilities, whose rounding is at most ``eps * (k
    + 2 * H)``: eps is that of the dtype of ``target``, H the entropy of the k classes. Where p of
    the bin is 0, as that of masked logits is, a q that is no larger counts as 0; a larger one makes
    the loss infinite. With ``reverse`` a q of 0 makes it infinite where p is above 0.

    The divergences of sequence distillation (Hinton et al. 2015, arXiv:1503.02531; the reverse one,
    Gu et al. 2023, arXiv:2306.08543) from what a server returns of a teacher.

    Args:
        input: the student's logits, ``(..., C)`` for C classes; differentiable.
        classes: the numbers of k classes of each row in int64, int32 or uint8, ``(..., k)``; all
            different, in any order.
        target: the teacher's log-probabilities of these, ``(..., k)``; differentiable. Where they
            sum up to more than 1 they are divided by their sum.
        reverse: whether the student's distribution weighs the logarithms.
        temperature: divides the student's logits; above 0. The teacher's log-probabilities are of
            the teacher's own.
        mask: bool, ``(...)``: the rows that count; None for all. The loss and the gradients of the
            others are 0, whatever they hold.
        reduction: ``none`` (one loss for each row), ``mean`` (over the rows that count) or ``sum``
            (shape ``()``).

    Returns:
        The loss in the promoted dtype, of 16 bits in float32.

    Raises:
        ValueError: for an unknown reduction, a temperature that is not above 0, or shapes that do
            not fit.
        TypeError: for class numbers of another dtype, or logits that are no floating tensor.
        IndexError: on the CPU, where a class of a row that counts is out of range. On a GPU the
            loss and the gradients of that row are NaN.
    """
    operands = (input, classes, target, mask)
    return Arguments(operands, reduction, (float(reverse), temperature))  # type: ignore[arg-type]


SPEC = row_loss(
    topk_kl_divergence,
    "TopKKLDivergenceLoss",
    calls=_Calls("topk_kl_divergence"),
    formula="sum of q * log(q / p) over k classes and all others as one, p = softmax(x / T)",
    operands=(
        Operand("input", "logits"),
        class_numbers(
            "classes", _of_known_classes, "numbers of k classes", domain=DISTINCT_CLASSES
        ),
        Operand("target", "their log-probabilities", shape=_of_known_classes, domain=SHARES),
        MASK,
    ),
    parameters=(
        switch("reverse", False, "weigh the logarithms by p, not by q"),
        Parameter("temperature", 1.0, 0.0, "divides the logits", 1.3, open=True),
    ),
    composed_of=(KL_DIVERGENCE.name, REVERSE_KL_DIVERGENCE.name, "token_log_probs"),
    reference=reference,
    wide=True,
    widens=True,
    temporaries=6,
    counts=_counts,
    relations=Relations(always, reordered=True),
    terms=Terms(_terms, REASON),
)
