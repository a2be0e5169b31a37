"""Implementations that are wrong on purpose, with one typical mistake each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from losscli.cases import Case
from losscli.implementations import Implementation
from losscli.losses import ELEMENT, ROW, Unit
from losscli.losses.rows.forms import IGNORE_INDEX
from losscli.reasons import Reason
from losscli.verify.checks.branches import has_exact_values
from losscli.verify.selftest.formula import Make, simple, unreduced
from losscli.verify.selftest.wrong import behaviour, gradients, rows, values, vectors


@dataclass(frozen=True)
class Wrong:
    """One mistake."""

    name: str
    bind: Make
    applies: Callable[[Case], bool] = lambda case: True
    """Whether it is a mistake in a case: only where there are branches is one to be left out."""
    temporaries: int | None = None
    """The claims of the implementation, as the next field; see :class:`Implementation`."""
    held_to_oracle: bool = False
    units: tuple[Unit, ...] = (ELEMENT,)
    """Whether it is planted into losses of elements, of rows, or both."""

    def applies_to(self, case: Case) -> bool:
        """Tell whether it is a mistake in a case."""
        return case.spec.unit in self.units and self.applies(case)

    def implementation(self) -> Implementation:
        """Return the mistake as an implementation."""
        return Implementation(
            f"wrong:{self.name}",
            "",
            self.bind,
            self._unavailable,
            self.temporaries,
            held_to_oracle=self.held_to_oracle,
        )

    def _unavailable(self, case: Case) -> Reason | None:
        if self.applies_to(case):
            return None
        return Reason("not_applicable", f"{self.name} is no mistake here")


def _is_reduced(case: Case) -> bool:
    return case.reduction != "none"


def _is_not_reduced(case: Case) -> bool:
    return case.reduction == "none"


def _is_mean(case: Case) -> bool:
    return case.reduction == "mean"


def _has_kinks(case: Case) -> bool:
    return bool(case.spec.kinks(case.params))


def _nothing_is_left_at_a_kink(case: Case) -> bool:
    """Tell whether the loss beside a kink is what the parameters and operands leave of it."""
    kinks = [kink for kink in case.spec.kinks(case.params) if kink]
    at = [torch.tensor(value, dtype=torch.float64) for value in (*kinks, 1.0)]
    others = at[-1:] * (len(case.spec.operands) - 1)
    return any(float(unreduced(case, kink, *others)) == 0 for kink in at[:-1])


def _on_a_gpu(case: Case) -> bool:
    return case.device != "cpu"


def _has_parameters(case: Case) -> bool:
    return bool(case.spec.parameters)


def _takes_anything(case: Case) -> bool:
    """Tell whether the input may be NaN: what PyTorch refuses to compute has no result to miss."""
    return not case.spec.operands[0].refused


def _broadcasts(case: Case) -> bool:
    return case.target_shape != case.shape


def _is_weighted(case: Case) -> bool:
    return "weight" in case.spec.names


def _learns_weight(case: Case) -> bool:
    """Tell whether the loss has a gradient for its weight."""
    return "weight" in case.spec.differentiable


def _smooths(case: Case) -> bool:
    """Tell whether it is a cross entropy of class numbers."""
    return {"label_smoothing", IGNORE_INDEX.name} <= {*case.params}


def _counts_rows(case: Case) -> bool:
    """Tell whether rows may count nothing in a mean."""
    return _is_mean(case) and getattr(case.spec, "counts", None) is not None


def _has_temperature(case: Case) -> bool:
    return case.params.get("temperature", 1.0) != 1


def _of(*losses: str) -> Callable[[Case], bool]:
    """Return whether a case is of one of these losses."""
    return lambda case: case.loss in losses


def _planted_into(*units: Unit) -> Callable[..., Wrong]:
    """Return what makes a mistake of losses of these units from a function of case and operands."""

    def made(
        name: str,
        loss: Callable[..., Tensor],
        applies: Callable[[Case], bool] = lambda case: True,
        **fields: Any,
    ) -> Wrong:
        return Wrong(name, simple(loss), applies, units=units, **fields)

    return made


_elements, _rows, _both = _planted_into(ELEMENT), _planted_into(ROW), _planted_into(ELEMENT, ROW)

WRONG: tuple[Wrong, ...] = (
    _both("constant", values.constant),
    _both("zeros", gradients.zeros),
    _elements("one percent", values.one_percent),
    _elements("dropped tail", values.dropped_tail),
    _both("ignored parameter", values.ignored_parameters, _has_parameters),
    _elements(
        "rounded parameters",
        values.rounded_parameters,
        _nothing_is_left_at_a_kink,
        held_to_oracle=True,
    ),
    _elements("branch left out", values.flat_below, _has_kinks),
    _elements("branch scaled", values.scaled_below, _has_kinks),
    _elements("branches swapped", values.mirrored, _has_kinks),
    _elements("wrong axis", values.wrong_axis, _broadcasts),
    _elements("sum for mean", values.sum_for_mean, _is_mean),
    _elements("1/rows for 1/N", values.rows_for_elements, _is_mean),
    _both("ignored incoming", gradients.ignored_incoming),
    _both("squared incoming", gradients.squared_incoming),
    _elements("small gradients lost", gradients.underflow, _is_mean),
    _elements("wrong sign", gradients.wrong_sign),
    _elements("absent gradient", gradients.absent_target),
    _both("detached", gradients.detached),
    _both("float16 inside", values.half_inside),
    _elements("narrow accumulator", values.narrow_accumulator, _is_reduced),
    _elements("assumes contiguous", values.contiguous),
    _elements("NaN scrubbed", values.scrubbed, _takes_anything),
    _both("in place", behaviour.in_place),
    Wrong("cached", behaviour.cached, units=(ELEMENT, ROW)),
    Wrong("first call only", behaviour.first_call_only, units=(ELEMENT, ROW)),
    _both("uninitialised", behaviour.uninitialised),
    _elements("beyond the end", behaviour.beyond_the_end),
    _both("unsteady", behaviour.unsteady),
    _both("wrong when recording", behaviour.recording),
    _both("shape (1,)", values.shape_of_one, _is_reduced),
    _both("other dtype", values.other_dtype),
    _both("no curvature", gradients.no_curvature),
    _both("scales in place", gradients.scales_in_place, _is_reduced),
    _both("clears .grad", gradients.clears_gradients),
    Wrong("last incoming", gradients.last_incoming, units=(ELEMENT, ROW)),
    Wrong("habit", gradients.habit, _is_reduced, units=(ELEMENT, ROW)),
    _both("skips in a capture", gradients.skips_in_a_capture, _on_a_gpu),
    _elements("transposed gradient", gradients.transposed_gradient),
    _elements("wrong middle", values.wrong_middle),
    _elements("square transposed", values.square_transposed),
    _elements("rounded target", values.rounded_target),
    _elements("looks again", gradients.reused_sizes),
    _elements("one ulp off", values.one_ulp, has_exact_values),
    Wrong("first row decides", gradients.first_row_decides, _is_not_reduced, units=(ELEMENT, ROW)),
    Wrong("one number", gradients.one_number, _is_not_reduced),
    _elements("mean of means", values.mean_of_means, _is_mean),
    _rows("counts ignored rows", rows.counts_ignored, _counts_rows),
    _rows("weight forgotten", rows.without_weight, _is_weighted),
    _rows("softmax alone", rows.sum_of_softmax, _smooths),
    _rows("maximum kept", rows.without_maximum, _smooths),
    _rows("dropped classes", rows.dropped_classes, _smooths),
    _rows("narrow sum of a row", rows.narrow_sum, _smooths),
    _rows("smooths the others", rows.smooths_the_others, _smooths),
    _rows("smooths a part", rows.smooths_a_part, _smooths),
    _rows("gradient over the logits", rows.gradient_over_logits),
    _rows("no gradient of later rows", rows.no_gradient_of_later_rows),
    _rows("no gradient of the weight", rows.no_gradient_of_weight, _learns_weight),
    _rows("gradient of ignored rows", rows.gradient_of_ignored, _smooths),
    _rows("classes last", rows.last_dimension, _smooths),
    _rows("incoming of the first row", rows.incoming_of_first_row, _is_not_reduced),
    # On a GPU the check is of what promises NaN.
    _rows("clamps targets", rows.clamps_targets, _smooths, held_to_oracle=True),
    _rows("input for target", vectors.exchanged, _of("masked_kl_divergence")),
    _rows("temperature forgotten", vectors.without_temperature, _has_temperature),
    _rows("mean left out", vectors.without_mean, _of("masked_kl_divergence")),
    _rows("one softmax alone", vectors.without_own_mean, _of("masked_kl_divergence")),
    _rows(
        "sign near a tie",
        vectors.flipped_near_ties,
        _of("total_variation", "masked_total_variation"),
    ),
    _rows("epsilon added", vectors.added_epsilon, _of("cosine_similarity")),
    _rows("other side", vectors.other_side, _of("multi_margin")),
    *(
        Wrong(f"leaves {name}", behaviour.leaves(change))
        for name, change in behaviour.LEFT_BEHIND.items()
    ),
    _elements("copies", behaviour.copies, _is_mean, temporaries=0),
)


def find_wrong(name: str) -> Wrong:
    """Look a mistake up by its name; StopIteration where there is none."""
    return next(wrong for wrong in WRONG if wrong.name == name)
