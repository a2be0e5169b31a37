"""Implementations that are wrong on purpose, with one typical mistake each."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.losses import ELEMENT, HIDDEN_STATE, ROW, Unit
from losscli.verify.checks.branches import has_exact_values
from losscli.verify.selftest import surgery
from losscli.verify.selftest.surgery import formula, graft, regrade, unreduced
from losscli.verify.selftest.wrong import composed, elements, rows, side_effects


def _by(*reductions: str) -> Callable[[Case], bool]:
    return lambda case: case.reduction in reductions


_REDUCED, _MEAN, _UNREDUCED = _by("mean", "sum"), _by("mean"), _by("none")


def _has_kinks(case: Case) -> bool:
    return bool(case.spec.kinks(case.params))


def _zero_at_kink(case: Case) -> bool:
    """Tell whether the loss is zero at a kink, so that rounded parameters show next to it."""
    kinks = [kink for kink in case.spec.kinks(case.params) if kink]
    at = [torch.tensor(value, dtype=torch.float64) for value in (*kinks, 1.0)]
    others = at[-1:] * (len(case.spec.operands) - 1)
    return any(float(unreduced(case, kink, *others)) == 0 for kink in at[:-1])


def _target_has_gradient(case: Case) -> bool:
    return case.spec.operands[1].differentiable


def _accepts_repeated_target(case: Case) -> bool:
    whole, repeated = (4, 3, 5), (4, 1, 5)
    return not case.spec.refused([whole, repeated, *(whole for _ in case.spec.names[2:])])


def _counts_rows(case: Case) -> bool:
    counts = getattr(case.spec, "counts", None) is not None
    return _MEAN(case) and (counts or case.spec.unit == HIDDEN_STATE)


def _of(*losses: str) -> Callable[[Case], bool]:
    return lambda case: case.loss in losses


_MASKED_KL = _of("masked_kl_divergence")


def _bound(name: str, *given: Any, **claims: Any) -> Implementation:
    return surgery.stand_in(f"wrong:{name}", *given, **claims)


def _planted(
    units: tuple[Unit, ...], name: str, loss: Callable[..., Tensor], *given: Any, **claims: Any
) -> Implementation:
    return _bound(name, lambda case: partial(loss, case), *given, units=units, **claims)


_elements, _rows = partial(_planted, (ELEMENT,)), partial(_planted, (ROW,))
_linear = partial(_planted, (HIDDEN_STATE,))
_all = partial(_planted, (ELEMENT, ROW, HIDDEN_STATE))


def _on_logits(name: str, mistake: Callable[..., Tensor], *given: Any) -> Implementation:
    return _linear(f"{name}, fused linear", composed.on_logits(mistake), *given)


def _topk(name: str, mistake: Callable[..., Tensor]) -> Implementation:
    applies = _of("topk_kl_divergence", "masked_topk_kl_divergence")
    return _rows(f"{name}, of k classes", mistake, applies)


def _changed(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda case, *operands: change(formula(case, *operands))


def _of_value(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Change the value and keep the gradients."""
    return _changed(lambda loss: graft(change(loss.detach()), loss))


def _of_incoming(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return _changed(lambda loss: regrade(loss, change))


def _of_operands(change: Callable[[Tensor], Tensor], *places: int) -> Callable[..., Tensor]:
    """Change some operands, or all."""

    def loss(case: Case, *operands: Tensor) -> Tensor:
        own = (change(x) if n in places or not places else x for n, x in enumerate(operands))
        return formula(case, *own)

    return loss


def _of_gradient(place: int, change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return _of_operands(lambda operand: regrade(operand, change), place)


WRONG: tuple[Implementation, ...] = (
    _all("constant", _of_value(lambda loss: torch.full_like(loss, 0.375))),
    _all("zeros", _changed(lambda loss: graft(loss, 0 * loss))),
    _elements("one percent", elements.one_percent),
    _elements("dropped tail", elements.dropped_tail),
    _all(
        "ignored parameter",
        lambda case, *x: formula(case, *x, **{p.name: p.default for p in case.spec.parameters}),
        lambda case: bool(case.spec.parameters),
    ),
    _elements(
        "rounded parameters", elements.rounded_parameters, _zero_at_kink, held_to_oracle=True
    ),
    _elements("branch left out", elements.flat_below, _has_kinks),
    _elements("branch scaled", elements.scaled_below, _has_kinks),
    _elements("branches swapped", elements.mirrored, _has_kinks),
    _elements("wrong axis", elements.wrong_axis, lambda case: case.target_shape != case.shape),
    _elements("sum for mean", lambda case, *x: formula(case, *x, reduction="sum"), _MEAN),
    _elements(
        "1/rows for 1/N", lambda case, *x: formula(case, *x, reduction="sum") / x[0].shape[0], _MEAN
    ),
    _all("ignored incoming", _of_incoming(torch.ones_like)),
    _all("squared incoming", _of_incoming(torch.square)),
    # What an absolute tolerance never sees.
    _elements("small gradients lost", _of_gradient(0, lambda g: g * (g.abs() > 1e-6)), _MEAN),
    _elements("wrong sign", _of_gradient(1, torch.neg), _target_has_gradient),
    _elements("absent gradient", _of_operands(Tensor.detach, 1), _target_has_gradient),
    _all("detached", _changed(Tensor.detach)),
    _all("float16 inside", elements.half_inside),
    _elements("narrow accumulator", elements.narrow_accumulator, _REDUCED),
    _elements("assumes contiguous", _of_operands(elements.contiguous)),
    _elements(
        "NaN scrubbed",
        _of_operands(torch.nan_to_num, 0),
        # What PyTorch refuses to compute has no result to miss.
        lambda case: not case.spec.operands[0].refused,
    ),
    _all("in place", side_effects.in_place),
    _bound("cached", side_effects.cached),
    _bound("first call only", side_effects.first_call_only),
    _all("uninitialised", side_effects.uninitialised),
    _elements("beyond the end", side_effects.beyond_the_end),
    _all("unsteady", _of_value(side_effects.unsteady)),
    _all("wrong when recording", _changed(lambda x: 1.01 * x if x.requires_grad else x)),
    _all("shape (1,)", _changed(lambda loss: loss.reshape(1)), _REDUCED),
    _all("other dtype", _changed(lambda x: x.double() if x.dtype != torch.float64 else x.float())),
    _all("no curvature", surgery.without_curvature),
    _all("scales in place", surgery.scaled_in_place, _REDUCED),
    _all("clears .grad", elements.clears_gradients),
    _bound("last incoming", elements.last_incoming),
    _bound("habit", elements.habit, _REDUCED),
    # What a captured backward pass does not need for a grad_output of 1.
    _all(
        "skips in a capture",
        _of_incoming(
            lambda g: torch.ones_like(g) if torch.cuda.is_current_stream_capturing() else g
        ),
        lambda case: case.device != "cpu",
    ),
    _elements("transposed gradient", _of_operands(elements.transposed_gradient, 0)),
    _elements("wrong middle", elements.wrong_middle, _accepts_repeated_target),
    _elements("square transposed", _of_operands(elements.square_transposed, 1)),
    _elements("rounded target", elements.rounded_target),
    _elements("looks again", _of_operands(elements.reused_sizes, 0)),
    _elements(
        "one ulp off",
        _of_value(lambda loss: torch.nextafter(loss, torch.full_like(loss, torch.inf))),
        has_exact_values,
    ),
    _bound("first row decides", elements.first_row_decides, _UNREDUCED),
    _elements("one number", _of_incoming(elements.one_number), _UNREDUCED),
    _elements("mean of means", elements.mean_of_means, _MEAN),
    _rows("counts ignored rows", rows.counts_ignored, _counts_rows),
    _rows(
        "weight forgotten",
        _of_operands(lambda weight: torch.ones_like(weight) + 0 * weight, 2),
        lambda case: "weight" in case.spec.names,
    ),
    _rows("softmax alone", rows.sum_of_softmax, rows.is_smoothed),
    _rows("maximum kept", rows.without_maximum, rows.is_smoothed),
    _rows("dropped classes", rows.dropped_classes, rows.is_smoothed),
    _rows("narrow sum of a row", rows.narrow_sum, rows.is_smoothed),
    _rows("smooths the others", rows.smooths_the_others, rows.is_smoothed),
    _rows("smooths a part", rows.smooths_a_part, rows.is_smoothed),
    # To save memory.
    _rows("gradient over the logits", _of_operands(lambda x: regrade(x, x.detach().copy_), 0)),
    _rows("no gradient of later rows", _of_gradient(0, rows.first_block)),
    _rows(
        "no gradient of the weight",
        _of_gradient(2, torch.zeros_like),
        lambda case: "weight" in case.spec.differentiable,
    ),
    _rows("gradient of ignored rows", rows.gradient_of_ignored, rows.is_smoothed),
    _rows("classes last", _of_operands(rows.last_dimension, 0), rows.is_smoothed),
    _planted(
        (ROW, HIDDEN_STATE),
        "incoming of the first row",
        _of_incoming(lambda g: g[:1].expand(g.shape) if g.dim() else g),
        _UNREDUCED,
    ),
    # On a GPU the check is of what promises NaN.
    _rows("clamps targets", rows.clamps_targets, rows.is_smoothed, held_to_oracle=True),
    _rows("input for target", lambda case, x, y, mask: formula(case, y, x, mask), _MASKED_KL),
    _rows(
        "temperature forgotten",
        rows.without_temperature,
        lambda case: case.params.get("temperature", 1.0) != 1,
    ),
    _rows("mean left out", rows.without_mean, _MASKED_KL),
    _rows("one softmax alone", rows.without_own_mean, _MASKED_KL),
    _rows(
        "sign near a tie", rows.flipped_near_ties, _of("total_variation", "masked_total_variation")
    ),
    _rows("epsilon added", rows.added_epsilon, _of("cosine_similarity")),
    _rows("other side", _of_operands(torch.neg, 0), _of("multi_margin")),
    *(_topk(name, composed.of_bins(change)) for name, change in composed.MISTAKES.items()),
    _topk(
        "other direction", lambda case, *x: formula(case, *x, reverse=1 - case.params["reverse"])
    ),
    # Whatever the order of the log-probabilities is.
    _topk("classes in order", _of_operands(lambda classes: classes.sort(-1).values, 1)),
    _topk("sum above 1", composed.sum_above_one),
    _on_logits("counts ignored rows", rows.counts_ignored, _counts_rows),
    _on_logits("softmax alone", rows.sum_of_softmax),
    _on_logits("maximum kept", rows.without_maximum),
    _on_logits("filtered gradients", composed.filtered),
    # In float32 any tolerance finds them.
    _linear(
        "sums in bfloat16",
        composed.narrow_sums,
        lambda case: case.dtype == "bfloat16",
        held_to_oracle=True,
    ),
    *(
        _elements(f"leaves {name}", partial(side_effects.leaves, change))
        for name, change in side_effects.GLOBAL_STATE.items()
    ),
    _elements("copies", _of_operands(Tensor.contiguous), _MEAN, temporaries=0),
)
