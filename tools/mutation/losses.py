"""Mistakes in the formulas, which the CPU and CUDA share."""

from __future__ import annotations

from .mutation import Mutation

WEIGHTED = ("weighted_smooth_l1",)

LOSSES = (
    Mutation(
        "losses/elementwise/smooth_l1.h",
        "Real(0.5) * reciprocal",
        "Real(0.49) * reciprocal",
        "a factor",
    ),
    Mutation(
        "losses/elementwise/smooth_l1.h", "- Real(0.5) * beta", "- Real(0.5)", "beta left out"
    ),
    Mutation(
        "losses/elementwise/smooth_l1.h",
        "? Real(-1)",
        "? Real(1)",
        "the sign of the linear gradient",
    ),
    Mutation(
        "losses/elementwise/smooth_l1.h",
        "distance < beta ?",
        "distance <= beta ?",
        "< for <= where two branches meet",
        equivalent="both branches give beta / 2 there, but for the rounding of 1 / beta",
    ),
    Mutation(
        "losses/elementwise/smooth_l1.h",
        "< beta ? reciprocal",
        "> beta ? reciprocal",
        "the curvature",
    ),
    Mutation(
        "losses/elementwise/mse.h",
        "half + half",
        "half",
        "a factor of the gradient",
        losses=("mse",),
    ),
    Mutation(
        "losses/elementwise/mse.h",
        "out[1] = -out[0]",
        "out[1] = out[0]",
        "the target's sign",
        ("mse",),
    ),
    Mutation(
        "losses/elementwise/hinge.h",
        "at_least_zero(gap(x))",
        "gap(x)",
        "no clamp",
        losses=("hinge",),
    ),
    Mutation(
        "losses/elementwise/hinge.h",
        "gap(x) >= Real(0) ? -incoming",
        "gap(x) > Real(0) ? -incoming",
        "> for >= at the kink of the gradient",
        losses=("hinge",),
    ),
    Mutation(
        "losses/elementwise/hinge.h",
        "out[1] = slope * x[0]",
        "out[1] = slope * x[1]",
        "the target's gradient",
        losses=("hinge",),
    ),
    Mutation(
        "losses/elementwise/hinge.h",
        "out[1] = mixed * v[0]",
        "out[1] = mixed * v[1]",
        "the mixed derivative",
        losses=("hinge",),
    ),
    Mutation(
        "losses/elementwise/weighted.h",
        "return inner.value(without_weight(x)) * x[inner_operands];",
        "return inner.value(without_weight(x));",
        "the loss without the weight",
        WEIGHTED,
    ),
    Mutation(
        "losses/elementwise/weighted.h",
        "incoming * x[inner_operands]",
        "incoming",
        "the gradients without the weight",
        WEIGHTED,
    ),
    Mutation(
        "losses/elementwise/weighted.h",
        "incoming * inner.value(operands)",
        "inner.value(operands)",
        "the weight's gradient without the incoming one",
        WEIGHTED,
    ),
    Mutation(
        "losses/elementwise/weighted.h",
        "x[inner_operands] * own[k] + mixed[k]",
        "x[inner_operands] * own[k]",
        "the mixed derivatives",
        WEIGHTED,
    ),
    Mutation(
        "losses/elementwise/weighted.h",
        "of_weight += slopes[k] * v[k]",
        "of_weight = slopes[k] * v[k]",
        "the weight's second derivative by the target alone",
        WEIGHTED,
    ),
)
