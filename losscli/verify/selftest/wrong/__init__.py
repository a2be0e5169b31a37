"""Implementations that are wrong on purpose, with one typical mistake each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from losscli.cases import Case
from losscli.implementations import Implementation
from losscli.losses import ELEMENT, ROW, Unit
from losscli.losses.rows.forms import IGNORE_INDEX
from losscli.reasons import Reason
from losscli.verify.checks.exact import has_exact_values
from losscli.verify.selftest.formula import Make, simple, unreduced
from losscli.verify.selftest.wrong import behaviour, gradients, rows, values, vectors


@dataclass(frozen=True)
class Wrong:
    """One mistake."""

    name: str
    mistake: str
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
            self.mistake,
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


_BOTH: tuple[Unit, ...] = (ELEMENT, ROW)
_ROWS: tuple[Unit, ...] = (ROW,)

WRONG: tuple[Wrong, ...] = (
    Wrong("constant", "returns a number of its own", simple(values.constant), units=_BOTH),
    Wrong("zeros", "gradients of zero", simple(gradients.zeros), units=_BOTH),
    Wrong("one percent", "reads every hundredth row", simple(values.one_percent)),
    Wrong(
        "dropped tail", "leaves out what does not fill a vector of 8", simple(values.dropped_tail)
    ),
    Wrong(
        "ignored parameter",
        "takes the default",
        simple(values.ignored_parameters),
        _has_parameters,
        units=_BOTH,
    ),
    Wrong(
        "rounded parameters",
        "takes them in float32",
        simple(values.rounded_parameters),
        _nothing_is_left_at_a_kink,
        held_to_oracle=True,
    ),
    Wrong(
        "branch left out", "constant below the first kink", simple(values.flat_below), _has_kinks
    ),
    Wrong(
        "branch scaled",
        "0.49 for 1/2 below the first kink",
        simple(values.scaled_below),
        _has_kinks,
    ),
    Wrong("branches swapped", "each side of the first kink", simple(values.mirrored), _has_kinks),
    Wrong(
        "wrong axis", "broadcasts the target down the rows", simple(values.wrong_axis), _broadcasts
    ),
    Wrong("sum for mean", "does not divide", simple(values.sum_for_mean), _is_mean),
    Wrong("1/rows for 1/N", "divides by the rows", simple(values.rows_for_elements), _is_mean),
    Wrong(
        "ignored incoming",
        "the incoming gradient counts as 1",
        simple(gradients.ignored_incoming),
        units=_BOTH,
    ),
    Wrong("squared incoming", "counts twice", simple(gradients.squared_incoming), units=_BOTH),
    Wrong("small gradients lost", "below 1e-6", simple(gradients.underflow), _is_mean),
    Wrong("wrong sign", "of the target's gradient", simple(gradients.wrong_sign)),
    Wrong("absent gradient", "of the target", simple(gradients.absent_target)),
    Wrong("detached", "the loss has no history", simple(gradients.detached), units=_BOTH),
    Wrong("float16 inside", "computes in float16", simple(values.half_inside), units=_BOTH),
    Wrong(
        "narrow accumulator",
        "adds up in few digits",
        simple(values.narrow_accumulator),
        _is_reduced,
    ),
    Wrong("assumes contiguous", "reads as if all lay in one piece", simple(values.contiguous)),
    Wrong(
        "NaN scrubbed",
        "takes NaN and infinity for numbers",
        simple(values.scrubbed),
        _takes_anything,
    ),
    Wrong("in place", "writes over its input", simple(behaviour.in_place), units=_BOTH),
    Wrong("cached", "remembers results by address", behaviour.cached, units=_BOTH),
    Wrong("first call only", "right once", behaviour.first_call_only, units=_BOTH),
    Wrong(
        "uninitialised",
        "returns what was in the memory",
        simple(behaviour.uninitialised),
        units=_BOTH,
    ),
    Wrong("beyond the end", "reads one element too many", simple(behaviour.beyond_the_end)),
    Wrong("unsteady", "other results from run to run", simple(behaviour.unsteady), units=_BOTH),
    Wrong(
        "wrong when recording", "right without gradients", simple(behaviour.recording), units=_BOTH
    ),
    Wrong("shape (1,)", "for ()", simple(values.shape_of_one), _is_reduced, units=_BOTH),
    Wrong("other dtype", "float64 for float32", simple(values.other_dtype), units=_BOTH),
    Wrong(
        "no curvature", "second derivatives of zero", simple(gradients.no_curvature), units=_BOTH
    ),
    Wrong(
        "scales in place",
        "the gradient that it stores",
        simple(gradients.scales_in_place),
        _is_reduced,
        units=_BOTH,
    ),
    Wrong(
        "clears .grad",
        "so that nothing accumulates",
        simple(gradients.clears_gradients),
        units=_BOTH,
    ),
    Wrong("last incoming", "the gradient of the call before", gradients.last_incoming, units=_BOTH),
    Wrong("habit", "what came three times comes again", gradients.habit, _is_reduced, units=_BOTH),
    Wrong(
        "skips in a capture",
        "1 comes in when replayed",
        simple(gradients.skips_in_a_capture),
        _on_a_gpu,
        units=_BOTH,
    ),
    Wrong("transposed gradient", "in the order of storage", simple(gradients.transposed_gradient)),
    Wrong("wrong middle", "broadcasts the middle to the front", simple(values.wrong_middle)),
    Wrong(
        "square transposed", "reads a square target by columns", simple(values.square_transposed)
    ),
    Wrong("rounded target", "reads it in the input's dtype", simple(values.rounded_target)),
    Wrong("looks again", "at the operand's strides in backward", simple(gradients.reused_sizes)),
    Wrong("one ulp off", "rounds up what is exact", simple(values.one_ulp), has_exact_values),
    Wrong(
        "first row decides",
        "if it is zero, all is",
        gradients.first_row_decides,
        _is_not_reduced,
        units=_BOTH,
    ),
    Wrong("one number", "where a stride is 0", gradients.one_number, _is_not_reduced),
    Wrong("mean of means", "of 16 rows each, or fewer", simple(values.mean_of_means), _is_mean),
    Wrong(
        "counts ignored rows", "in a mean", simple(rows.counts_ignored), _counts_rows, units=_ROWS
    ),
    Wrong("weight forgotten", "takes 1", simple(rows.without_weight), _is_weighted, units=_ROWS),
    Wrong(
        "softmax alone", "no -1 for the target", simple(rows.sum_of_softmax), _smooths, units=_ROWS
    ),
    Wrong(
        "maximum kept", "exponentials overflow", simple(rows.without_maximum), _smooths, units=_ROWS
    ),
    Wrong(
        "dropped classes",
        "beyond vectors of 8",
        simple(rows.dropped_classes),
        _smooths,
        units=_ROWS,
    ),
    Wrong("narrow sum of a row", "in bfloat16", simple(rows.narrow_sum), _smooths, units=_ROWS),
    Wrong(
        "smooths the others",
        "1/(C-1) for 1/C",
        simple(rows.smooths_the_others),
        _smooths,
        units=_ROWS,
    ),
    Wrong(
        "smooths a part",
        "the first 1024 classes",
        simple(rows.smooths_a_part),
        _smooths,
        units=_ROWS,
    ),
    Wrong(
        "gradient over the logits",
        "which others may still read",
        simple(rows.gradient_over_logits),
        units=_ROWS,
    ),
    Wrong(
        "no gradient of later rows",
        "from the 1024th on it is zero",
        simple(rows.no_gradient_of_later_rows),
        units=_ROWS,
    ),
    Wrong(
        "no gradient of the weight",
        "it is zero",
        simple(rows.no_gradient_of_weight),
        _learns_weight,
        units=_ROWS,
    ),
    Wrong(
        "gradient of ignored rows",
        "is not 0",
        simple(rows.gradient_of_ignored),
        _smooths,
        units=_ROWS,
    ),
    Wrong(
        "classes last",
        "whatever lies behind them",
        simple(rows.last_dimension),
        _smooths,
        units=_ROWS,
    ),
    Wrong(
        "incoming of the first row",
        "for all rows",
        simple(rows.incoming_of_first_row),
        _is_not_reduced,
        units=_ROWS,
    ),
    Wrong(
        "clamps targets",
        "that are no class",
        simple(rows.clamps_targets),
        _smooths,
        held_to_oracle=True,  # on a GPU the check is of what promises NaN
        units=_ROWS,
    ),
    Wrong(
        "input for target",
        "and target for input",
        simple(vectors.exchanged),
        _of("masked_kl_divergence"),
        units=_ROWS,
    ),
    Wrong(
        "temperature forgotten",
        "in the gradients",
        simple(vectors.without_temperature),
        _has_temperature,
        units=_ROWS,
    ),
    Wrong(
        "mean left out",
        "q * d for q * (d - mean)",
        simple(vectors.without_mean),
        _of("masked_kl_divergence"),
        units=_ROWS,
    ),
    Wrong(
        "one softmax alone",
        "p for p - q",
        simple(vectors.without_own_mean),
        _of("masked_kl_divergence"),
        units=_ROWS,
    ),
    Wrong(
        "sign near a tie",
        "the other one within 1 %",
        simple(vectors.flipped_near_ties),
        _of("total_variation", "masked_total_variation"),
        units=_ROWS,
    ),
    Wrong(
        "epsilon added",
        "to the norm, whose least it is",
        simple(vectors.added_epsilon),
        _of("cosine_similarity"),
        units=_ROWS,
    ),
    Wrong(
        "other side",
        "of the hinge",
        simple(vectors.other_side),
        _of("multi_margin"),
        units=_ROWS,
    ),
    *(
        Wrong(f"leaves {name}", "changed for all that comes after", behaviour.leaves(change))
        for name, change in behaviour.LEFT_BEHIND.items()
    ),
    Wrong(
        "copies",
        "operands, and says it does not",
        simple(behaviour.copies),
        _is_mean,
        temporaries=0,
    ),
)


def find_wrong(name: str) -> Wrong:
    """Look a mistake up by its name; StopIteration where there is none."""
    return next(wrong for wrong in WRONG if wrong.name == name)
