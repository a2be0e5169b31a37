"""The errors of a verify run: a row per implementation and case.

``case`` is the case's name, without its dtype and reduction; ``LEGEND`` says what the errors are.
``verdict`` is the worst status of all checks of the case, including those without a figure. A case
for which only checks without a figure ran, and passed, has no row. Implementation, dtype and
reduction have a column if the run has more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from losscli.cases.case import Case, distinct_names
from losscli.losses import ROW
from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, Run, VerifyResult, VerifyStatus
from losscli.units import format_ulp
from losscli.views.document import Table, case_table
from losscli.views.phrases import shorten

VALUE = "value"
"""The check of the loss, which has columns; so has that of the gradient of each operand."""
VERDICT = "verdict"
LEGEND = (
    "rel: the relative error of the loss; ulp: its error in units in the last place, before / and "
    "what always passes; torch: that of PyTorch's own formula; input, target and so on: the "
    "largest error of an element of that gradient, before / and what is allowed"
)
LEAST_IMPORTANT = ("rel", "torch", "reduce", "dtype")
"""Columns that a narrow terminal goes without, the first one first."""
ELEMENT_ULP, ONCE_ROUNDED_ULP, VALUE_ULP = 4.0, 1.0, 2.0
"""The tolerances of losscli/truth/tolerances.py, which needs torch."""

Checks = Sequence[VerifyResult]
"""The checks of one implementation on one case."""


def asked(run: Run) -> list[VerifyResult]:
    """Return the results without those that show a failure again on a smaller case."""
    return [result for result in run.of(VerifyResult) if not result.shrunk_from]


def by_case(results: Checks) -> dict[tuple[Case, str], list[VerifyResult]]:
    """Return the checks of each case and implementation, in the order they finished."""
    return grouped(results, lambda result: (result.case, result.implementation))


def worst(results: Checks) -> VerifyStatus:
    """Return the worst status."""
    statuses = {result.status for result in results}
    return next(status for status in (FAIL, WARN, PASS, SKIPPED) if status in statuses)


def check(results: Checks, name: str) -> VerifyResult | None:
    """Return the result of a check, or of the gradient of an operand, if it ran."""
    names = (name, f"{name}_gradient")
    return next((result for result in results if result.check in names), None)


def own_ulp(result: VerifyResult | None) -> float | None:
    """Return the error of what the check is about: of the loss, or of a gradient."""
    if result is None:
        return None
    error = result.error
    return error.grad_ulp if error.value_ulp is None else error.value_ulp


def table(run: Run) -> Table:
    """Return the table of the cases that ran."""
    cases = {key: checks for key, checks in by_case(asked(run)).items() if _is_shown(checks)}
    columns: dict[str, Callable[[Checks], str]] = {
        "impl": lambda checks: shorten(checks[0].implementation),
        "dtype": lambda checks: checks[0].case.dtype,
        "reduce": lambda checks: checks[0].case.reduction,
        "rel": lambda checks: _relative(check(checks, VALUE)),
        "ulp": partial(_ulp, operand=VALUE),
        "torch": lambda checks: _reference_ulp(check(checks, VALUE)),
    }
    for operand in dict.fromkeys(name for case, _ in cases for name in case.spec.differentiable):
        columns[operand] = partial(_ulp, operand=operand)
    columns[VERDICT] = _worst_status
    for header in ("impl", "dtype", "reduce"):
        if len({columns[header](checks) for checks in cases.values()}) < 2:
            del columns[header]
    names = distinct_names(case for case, _ in cases)
    rows: dict[str, list[list[str]]] = {}
    for (case, _), checks in cases.items():
        # The other words have a column, or are above the table.
        words = (w for w in names[case].split() if w not in (case.dtype, case.reduction))
        rows.setdefault(" ".join(words), []).append([cell(checks) for cell in columns.values()])
    return case_table(list(columns), rows, least=LEAST_IMPORTANT)


def _is_shown(checks: Checks) -> bool:
    names = (VALUE, *checks[0].case.spec.differentiable)
    figures = [found for name in names if (found := check(checks, name))]
    return worst(checks) in (FAIL, WARN) or any(found.status == PASS for found in figures)


def _relative(result: VerifyResult | None) -> str:
    if result is None or result.error.value_rel is None:
        return "-"
    return f"{result.error.value_rel:.1e}" if result.error.value_rel else "0"


def _ulp(checks: Checks, operand: str) -> str:
    """Return the error of a loss or gradient and, after a slash, what passes in any case."""
    result = check(checks, operand)
    ulp = own_ulp(result)
    return "-" if result is None or ulp is None else f"{format_ulp(ulp)}/{allowed_ulp(result):g}"


def allowed_ulp(result: VerifyResult) -> float:
    """Return the ULP with which a loss or gradient passes in any case; see truth/tolerances.py."""
    case = result.case
    if result.check == VALUE and case.reduction != "none":
        bar = VALUE_ULP
    else:
        rounded_once = case.spec.unit == ROW and case.dtype in ("float16", "bfloat16")
        bar = ONCE_ROUNDED_ULP if rounded_once else ELEMENT_ULP
    return max(bar, result.tolerance_ulp or 0.0)


def _reference_ulp(result: VerifyResult | None) -> str:
    return (format_ulp(result.reference_error.value_ulp) if result else "") or "-"


def _worst_status(checks: Checks) -> str:
    """Return the worst status, and a loosened tolerance without its reason."""
    status = worst(checks)
    loosened = next((result.tolerance for result in checks if result.tolerance), "")
    tolerance = loosened.partition(":")[0]
    shown = status.upper() if status in (FAIL, WARN) else status
    return f"{shown} ({tolerance})" if tolerance else shown
