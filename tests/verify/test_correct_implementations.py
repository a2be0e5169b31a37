"""PyTorch's own formula and losscli's kernels pass each check of losses of elements."""

import functools
from typing import Any, NamedTuple

import pytest

from losscli.cases.axes import DISTRIBUTIONS, DTYPES
from losscli.implementations import find_implementation
from losscli.losses import REDUCTIONS, find_loss
from losscli.runs.records import PASS
from losscli.verify.checks.branches import NOTHING_EXACT, has_exact_values
from tests.machinery import MACHINERY
from tests.parameters import naming, square
from tests.verify.judging import put

SMALL = {"shape": (8, 24)}
SIXTEEN_BITS = ("float16", "bfloat16")


class Passing(NamedTuple):
    """Checks, the implementations that pass them, and the cases on which they do."""

    checks: tuple[str, ...]
    names: tuple[str, ...] = ("reference",)
    changes: dict[str, Any] = {}  # noqa: RUF012
    dtypes: tuple[str, ...] = DTYPES
    reductions: tuple[str, ...] = REDUCTIONS


PASSING = (
    *(Passing(("value", "gradients"), changes={"distribution": each}) for each in DISTRIBUTIONS),
    Passing(("determinism", "layouts"), changes=SMALL),
    Passing(("exact", "parts", "left_behind"), ("custom", "reference", "functional")),
    Passing(("retained", "accumulation")),
    Passing(("numeric",), dtypes=("float64",)),
    Passing(("steps", "changed_operands"), dtypes=("float32",)),
    Passing(("memory",), changes=SMALL),
    Passing(("remembered",), changes=SMALL, dtypes=("float32",)),
    Passing(("coverage",), changes={"shape": (173, 101)}),
    Passing(
        ("second_derivatives",),
        ("custom", "reference"),
        {"distribution": "normal"},
        dtypes=("float32",),
    ),
    Passing(("rounding",), ("custom", "reference"), dtypes=SIXTEEN_BITS, reductions=("none",)),
    Passing(("boundary_sizes", "special_values"), ("custom",), reductions=("mean",)),
    Passing(
        ("large_outputs", "broadcasts"),
        ("custom",),
        dtypes=("float32", "bfloat16"),
        reductions=("none",),
    ),
)


@functools.cache
def results_of(name):
    """Return the names of the results of a check of losses of two operands with gradients."""
    both = ("input_gradient", "target_gradient")
    return both if name == "gradients" else (name,)


@pytest.mark.parametrize(("loss", "reduction", "dtype"), square(MACHINERY, REDUCTIONS, DTYPES))
def test_correct_implementations_pass(make_case, loss, reduction, dtype):
    for checks, names, changes, dtypes, reductions in PASSING:
        if dtype not in dtypes or reduction not in reductions:
            continue
        case = make_case(loss, reduction=reduction, dtype=dtype, **changes)
        inexact = {} if has_exact_values(case) else {"exact": NOTHING_EXACT}
        due = sorted(
            (result, PASS, inexact.get(check, ""))
            for check in checks
            for result in results_of(check)
        )
        for name in names:
            implementation = find_implementation(name)
            if implementation.unavailable(case):
                assert (name, find_loss(loss).functional) == ("functional", None)
                continue
            with naming(name, checks, changes):
                found = put(case, implementation, checks=checks)
                assert sorted((r.check, r.status, r.reason) for r in found) == due
