"""Divergence over a teacher's k most likely classes, with one bin for all others.

The student's bin is the log-sum-exp of the others, because 1 minus the k probabilities would lose
all digits of a small remainder. ``losscli/linear/topk_kl_divergence.py`` computes it by kernels.
"""

from __future__ import annotations

from losscli.machine.pytorch import Tensor, torch

from ..calling import Arguments
from ..domain import DISTINCT_CLASSES, SHARES
from ..fields import LOSS, Operand, Relations, Terms, switch
from ..formulas import always, widened
from ..making import OF_COUNTED, row_loss
from ..shapes import Shape
from .calls import RowCalls
from .forms import temperature_of
from .logit_pairs import KL_DIVERGENCE, REASON, REVERSE_KL_DIVERGENCE, kl_terms
from .spec import ROW_MASK, RowSpec, class_indices, counts_of_mask
from .terms import LazyTerms, Softmax, known, masked

_MOST_CLASSES = 16
"""A teacher's known classes in generated cases, at most half of all."""


def _of_known_classes(shape: Shape) -> Shape:
    return *shape[:-1], min((shape[-1] + 1) // 2, _MOST_CLASSES)


def _with_rest(log_probs: Tensor, impossible: Tensor) -> Tensor:
    """Append the remainder's log-probability, in float64; 0 if the student's is ``impossible``."""
    wide = log_probs.double()
    shares = wide.exp()
    rest = 1 - shares.sum(-1, keepdim=True)
    surprise = (shares * wide).detach().nan_to_num(nan=0.0)  # 0 times infinity is 0
    rounding = _rounding(log_probs.dtype, log_probs.shape[-1], -surprise.sum(-1, keepdim=True))
    # Harmless without a remainder, because the gradient is computed there too.
    positive = rest > torch.where(impossible, rounding, 0.0)
    log_rest = torch.where(positive, rest, 1.0).log().masked_fill(~positive, -torch.inf)
    return torch.cat([wide, log_rest], -1).to(widened(log_probs.dtype))


def _rounding(dtype: torch.dtype, k: int, entropy: Tensor) -> Tensor:
    """Return how far a sum of k probabilities may differ from 1 by rounding.

    A log-softmax ``t = (x - max) - log(sum)`` with unit roundoff u is off by ``u * |x - max|`` and
    ``u * |t|`` for its differences, ``u * log(sum)`` for the logarithm, and the sum's relative
    error: ``u * k`` for additions, ``2 * u`` for exponentials, and the mean of ``u * |x - max|``.
    ``|x - max|`` and ``log(sum)`` are at most ``|t|``, whose mean is the entropy H, so the total is
    ``u * (4 * H + k + 2)``, at most ``2 * u * (2 * H + k)`` for two or more classes; one class is
    exact.
    """
    return torch.finfo(dtype).eps * (k + 2 * entropy)


def bins_of(logits: Tensor, classes: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Return scaled logits of the classes, and of all others as one bin."""
    scaled = logits.to(widened(logits.dtype)) / temperature
    if mask is not None:
        scaled = torch.where(mask.unsqueeze(-1), scaled, torch.zeros_like(scaled))
    others = scaled.scatter(-1, classes, -torch.inf)
    # Harmless where no other class is possible: the gradient of logsumexp is NaN there.
    is_empty = (others == -torch.inf).all(-1, keepdim=True)
    rest = others.masked_fill(is_empty, 0.0).logsumexp(-1, keepdim=True)
    return torch.cat([scaled.gather(-1, classes), rest.masked_fill(is_empty, -torch.inf)], -1)


def known_bins(bins: Tensor, target: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return both sets of bins, without the remainder if the teacher knows all classes."""
    largest = bins.detach().amax(-1, keepdim=True)
    impossible = (bins.detach()[..., -1:] - largest).exp() == 0
    target = _with_rest(target, impossible)
    return (bins, target) if bins.shape[-1] <= classes else (bins[..., :-1], target[..., :-1])


def harmless(
    classes: Tensor, target: Tensor, kept: Tensor | None, instead: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return int64 classes and the target, with safe values in other rows."""
    classes = classes.long()
    if kept is None:
        return classes, target
    kept, numbers = kept.unsqueeze(-1), torch.arange(classes.shape[-1], device=classes.device)
    return torch.where(kept, classes, numbers), torch.where(kept, target, instead)


def bins_of_both(
    input: Tensor, classes: Tensor, target: Tensor, mask: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the student's and the teacher's bins, with safe values in masked rows."""
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
    """The formula in PyTorch."""
    pair = bins_of_both(input, classes, target, mask, temperature)
    return divergence_of(reverse).reference(*pair, mask, reduction=reduction)


def _terms(
    input: Tensor,
    classes: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    reverse: float = 0.0,
    temperature: float = 1.0,
) -> LazyTerms:
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
        # A product of two factors, each off by a few roundings.
        own = 2 * found[..., -1:] * known(others.weight)
        return own.scatter(-1, classes, found[..., :-1])

    def of_target() -> Tensor:
        found = of_bins["target"]
        if not has_rest:
            return found
        # The derivative of the remainder's logarithm is -q over the remainder.
        return found[..., :-1] + known(target.exp() * (found / q.probability)[..., -1:])

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

    For distillation (Hinton et al. 2015, arXiv:1503.02531; reverse: Gu et al. 2023,
    arXiv:2306.08543) from a server that returns only the teacher's top classes.

    With p the softmax of ``input / T`` and q the teacher's distribution, whose logarithms for k
    classes are in ``target``, a row's loss is the sum of ``q * log(q / p)`` over these classes and
    a bin with the remaining q and p; with ``reverse``, of ``p * log(p / q)``. 0 times infinity is
    0.

    The bin's q is 1 minus a sum of rounded probabilities, with an error of at most ``eps * (k + 2 *
    H)``, where eps is that of the dtype of ``target`` and H the entropy of the k classes. If the
    bin's p is 0, as for masked logits, a q within this error counts as 0; a larger one makes the
    loss infinite. With ``reverse``, q = 0 with p above 0 makes it infinite.

    Args:
        input: the student's logits, ``(..., C)`` for C classes; differentiable.
        classes: indices of k distinct classes per row, in int64, int32 or uint8, ``(..., k)``, in
            any order.
        target: the teacher's log-probabilities of these, ``(..., k)``, at its own temperature;
            differentiable. If they sum to more than 1, they are divided by their sum.

    Returns:
        The loss in the promoted dtype; float32 for 16 bits.

    Raises:
        ValueError: an unknown reduction, a temperature not above 0, or shapes that do not fit.
        TypeError: class indices of another dtype, or logits that are not floating-point.
    """
    operands = (input, classes, target, mask)
    return Arguments(operands, reduction, (float(reverse), temperature), composed=True)


SPEC = row_loss(
    topk_kl_divergence,
    "TopKKLDivergenceLoss",
    calls=RowCalls("topk_kl_divergence", composing="topk_kl_divergence"),
    formula="sum of q * log(q / p) over k classes and all others as one, p = softmax(x / T)",
    operands=(
        Operand("input", "logits"),
        class_indices("classes", _of_known_classes, "indices of k classes", DISTINCT_CLASSES),
        Operand("target", "their log-probabilities", shape=_of_known_classes, domain=SHARES),
        ROW_MASK,
    ),
    parameters=(
        switch("reverse", False, "weigh the logarithms by p, not by q"),
        temperature_of("the logits"),
    ),
    composed_of=(KL_DIVERGENCE.name, REVERSE_KL_DIVERGENCE.name, "token_log_probs"),
    reference=reference,
    wide=True,
    temporaries=6,
    counts=counts_of_mask,
    relations=Relations(always, reordered=True),
    common={"reduction": OF_COUNTED},
    terms=Terms(_terms, REASON),
)
