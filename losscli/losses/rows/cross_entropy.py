"""Cross entropy of rows of logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from losscli.machine.pytorch import Tensor, torch

from .. import aten
from ..calling import Arguments, reduction_of
from ..domain import PROBABILITIES
from ..fields import LOSS, Operand, Parameter, Relations, Terms
from ..formulas import promoted, reduce, widened
from ..making import row_loss
from .calls import RowCalls
from .forms import IGNORE_INDEX, temperature_of
from .spec import TARGET, class_weight, counts_of_classes, number_of_one_row, of_classes
from .terms import LazyTerms


class _Rows(NamedTuple):
    dim: int
    logits: Tensor
    """Logits after temperature and softcap, in at least float32."""
    weight: Tensor | None
    """The weights in a shape that broadcasts with the logits."""
    probabilities: Tensor | None
    """The smoothed target; None if the target holds class indices."""
    number: Tensor | None
    """The class of each row, 0 if ignored."""
    kept: Tensor | None
    """Whether a row is not ignored."""
    divisor: Tensor | int
    dtype: Any

    def of_number(self) -> Tensor | float:
        if self.weight is None or self.number is None:
            return 1.0
        found: Tensor = self.weight.flatten()[self.number]
        return found

    def shares(self, label_smoothing: float) -> Tensor:
        """Return each class's factor in the loss of its row."""
        share = self.probabilities
        if share is None:
            assert self.number is not None
            index = self.number.unsqueeze(self.dim)
            share = torch.zeros_like(self.logits).scatter(self.dim, index, 1 - label_smoothing)
            if label_smoothing:
                share = share + label_smoothing / self.logits.shape[self.dim]
        share = share if self.weight is None else share * self.weight
        return share if self.kept is None else share * self.kept.unsqueeze(self.dim)


def _rows(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    *,
    ignore_index: float = -100,
    label_smoothing: float = 0.0,
    temperature: float = 1.0,
    softcap: float = 0.0,
) -> _Rows:
    dim = 0 if input.dim() == 1 else 1
    # Probabilities and class indices are told apart as in PyTorch.
    has_probabilities, classes = input.shape == target.shape, max(input.shape[dim], 1)
    promotes = (input, target, input if weight is None else weight)
    dtype = promoted(*promotes) if has_probabilities else input.dtype
    wide = widened(dtype)
    logits = input.to(wide) if temperature == 1 else input.to(wide) / temperature
    logits = softcap * torch.tanh(logits / softcap) if softcap else logits
    if weight is not None:
        weight = weight.to(wide).view(-1, *[1] * (input.dim() - dim - 1))
    if has_probabilities:
        smoothed = target.to(wide)
        if label_smoothing:
            smoothed = smoothed * (1 - label_smoothing) + label_smoothing / classes
        divisor = input.numel() // classes
        return _Rows(dim, logits, weight, smoothed, None, None, divisor, dtype)
    target = target.to(torch.int64).view(input.shape[:dim] + input.shape[dim + 1 :])
    kept = target != int(ignore_index)
    number = torch.where(kept, target, 0)
    rows = _Rows(dim, logits, weight, None, number, kept, 1, dtype)
    if weight is None:
        return rows._replace(divisor=kept.sum(dtype=wide))
    # Rows are counted first: added up row after row, equal weights would all round alike.
    weight = weight.flatten()
    rows_of = weight.new_zeros(len(weight), dtype=torch.int64)
    rows_of = rows_of.index_put((number,), kept.long(), accumulate=True)
    return rows._replace(divisor=torch.where(rows_of > 0, rows_of * weight, 0.0).sum())


def reference(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    **others: float,
) -> Tensor:
    """The formula in PyTorch."""
    rows = _rows(input, target, weight, label_smoothing=label_smoothing, **others)
    logs = torch.log_softmax(rows.logits, rows.dim)
    weighted = logs if rows.weight is None else logs * rows.weight
    if rows.probabilities is not None:
        loss = -(weighted * rows.probabilities).sum(rows.dim)
    else:
        assert rows.number is not None
        picked = logs.gather(rows.dim, rows.number.unsqueeze(rows.dim)).squeeze(rows.dim)
        loss = -rows.of_number() * picked
        if label_smoothing:
            share = label_smoothing / input.shape[rows.dim]
            loss = (1 - label_smoothing) * loss - share * weighted.sum(rows.dim)
    if z_loss:
        loss = loss + z_loss * torch.logsumexp(rows.logits, rows.dim) ** 2
    if rows.kept is not None:
        loss = torch.where(rows.kept, loss, torch.zeros_like(loss))
    loss = loss.sum() / rows.divisor if reduction == "mean" else reduce(loss, reduction)
    return loss.to(rows.dtype)


def functional(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: float = -100,
    temperature: float = 1.0,
    softcap: float = 0.0,
    z_loss: float = 0.0,
    **settings: Any,
) -> Tensor:
    """PyTorch's function if it has the options, else the reference."""
    settings["ignore_index"] = int(ignore_index)
    has_numbers = not target.is_floating_point()
    if z_loss or (weight is not None and weight.requires_grad and has_numbers):
        settings |= {"temperature": temperature, "softcap": softcap, "z_loss": z_loss}
        return reference(input, target, weight, **settings)
    logits = input if temperature == 1 else input / temperature
    logits = softcap * torch.tanh(logits / softcap) if softcap else logits
    target = target.long() if has_numbers else target
    return aten.cross_entropy(logits, target, weight, **settings)


def _terms(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    **others: float,
) -> LazyTerms:
    rows = _rows(input, target, weight, label_smoothing=label_smoothing, **others)
    temperature, softcap = others.get("temperature", 1.0), others.get("softcap", 0.0)
    dim, x = rows.dim, rows.logits
    lse = torch.logsumexp(x, dim, keepdim=True)
    # A sum of exponentials is rounded relative to 1, and so is its logarithm.
    of_sum = (torch.softmax(x, dim) * x.abs()).nansum(dim, keepdim=True)
    of_sum = of_sum.fmax(lse.abs()).clamp(min=1.0)

    def shares(of: _Rows) -> Tensor:
        return of.shares(label_smoothing).abs().nan_to_num(nan=0.0, posinf=0.0)

    def loss() -> Tensor:
        found: Tensor = (shares(rows) * of_sum.fmax(x.abs())).nansum(dim)
        return found + (2 * z_loss * lse.abs() * of_sum).squeeze(dim) if z_loss else found

    def slope() -> Tensor:
        # A class's exponent is off by its own rounding and that of its inputs.
        exponent = (lse - x).abs()
        if temperature != 1 or softcap:
            exponent = exponent + 2 * x.abs()
        share = shares(rows)
        whole = share.sum(dim, keepdim=True) + 2 * z_loss * of_sum
        found = (torch.softmax(x, dim) * (1 + exponent / 4)).mul(whole).fmax(share)
        return found if temperature == 1 else found / temperature

    def of_target() -> Tensor:
        surprise = of_sum.fmax(x.abs())
        return surprise if rows.weight is None else surprise * rows.weight

    def of_weight() -> Tensor:
        return shares(rows._replace(weight=None)) * of_sum.fmax(x.abs())

    makers = {LOSS: loss, "input": slope}
    if rows.probabilities is not None:
        makers["target"] = of_target
    if weight is not None:
        makers["weight"] = of_weight
    return LazyTerms(makers)


PARAMETERS = (
    IGNORE_INDEX,
    Parameter(
        *("label_smoothing", 0.0, 0.0, "probability moved to all classes", 0.1, 1.0),
        usual=(0.0, 0.5),
    ),
    temperature_of("the logits"),
    Parameter("softcap", 0.0, 0.0, "bound of the logits, 0 for no bound", 3.7, other=3.7),
    Parameter("z_loss", 0.0, 0.0, "weight of the squared log-sum-exp", 1e-4),
)
_OF_PROBABILITIES = "_with_probabilities"


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    temperature: float = 1.0,
    softcap: float = 0.0,
    z_loss: float = 0.0,
) -> Arguments:
    """Cross entropy of logits, as torch.nn.functional.cross_entropy, with fused backward.

    With ``lse = log(sum of exp(x))``, a row's loss is the sum over classes of ``w * p * (lse - x)``
    plus ``z_loss * lse**2``; ``p`` is 1 for the target and 0 for others, or the target's
    probabilities.

    Args:
        input: logits, ``(C)``, ``(N, C)`` or ``(N, C, d1, ...)`` for C classes.
        target: class indices in int64, int32 or uint8, in the shape of ``input`` without C; or
            class probabilities in the shape of ``input``, which are differentiable.
        weight: a factor for each class, ``(C)``; differentiable. With class indices, the mean
            divides by the sum of the targets' weights.

    Returns:
        The loss, in the dtype of ``input``; with probabilities in the promoted dtype.

    Raises:
        ValueError: the batch size of ``target``, the reduction or a setting is invalid.
        RuntimeError: other shapes or dtypes do not fit.
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(
            f"cross_entropy: label_smoothing must be between 0 and 1, but is {label_smoothing:g}"
        )
    operator, dimensions = "", input.dim()
    if dimensions == target.dim() and input.shape == target.shape:
        operator = f"cross_entropy{_OF_PROBABILITIES}"
        _check_probabilities(input, target, ignore_index)
    elif dimensions < 2:
        _check_classes(input)
        target = number_of_one_row(target)
    settings = (ignore_index, label_smoothing, temperature, softcap, z_loss)
    return Arguments((input, target, weight), reduction, settings, operator=operator)


def _check_probabilities(input: Tensor, target: Tensor, ignore_index: int) -> None:
    if not target.is_floating_point():
        raise RuntimeError(
            f"cross_entropy: target has the shape of input {list(input.shape)} and so must hold "
            f"probabilities in a floating dtype, but is {target.dtype}; class indices have no "
            "dimension of classes: write target.argmax(1) where it marks them by 1, target.float() "
            "where it holds probabilities"
        )
    _check_classes(input)
    if ignore_index >= 0:
        raise RuntimeError(
            "cross_entropy: ignore_index is not supported for a target of probabilities, but is "
            f"{ignore_index}"
        )
    if not input.is_floating_point():
        raise TypeError(
            "cross_entropy: input must be float32, float64, float16 or bfloat16, but is "
            f"{input.dtype}; convert it with .float()"
        )


def _check_classes(input: Tensor) -> None:
    if not input.dim():
        raise IndexError(
            "cross_entropy: input must have a dimension of classes, but is a single number"
        )


_INPUT = Operand("input", "logits")
_WEIGHT = class_weight(of_classes, roundings=4)
_PROBABILITIES = Operand(
    "target", "probability of each class", domain=PROBABILITIES, composed=True, roundings=4
)
SPEC = row_loss(
    cross_entropy,
    "CrossEntropyLoss",
    calls=RowCalls("cross_entropy", in_place=True),
    kept=("weight",),
    formula="sum of w * p * (lse - x) + z_loss * lse^2, lse = log(sum of exp(x))",
    operands=(_INPUT, TARGET, replace(_WEIGHT, torch_differentiates=False)),
    forms={_OF_PROBABILITIES: (_INPUT, _PROBABILITIES, _WEIGHT)},
    parameters=PARAMETERS,
    second_dimension=True,
    reference=reference,
    functional=functional,
    counts=counts_of_classes,
    temporaries=7,
    # Without these, the loss depends only on differences of a row's logits.
    relations=Relations(lambda given: not (given["softcap"] or given["z_loss"]), reordered=True),
    terms=Terms(_terms, "a row's loss is the log of a sum of exponentials less its logits"),
)
