"""The figures of a verify run: a row per implementation and case.

Columns: ``case`` is the case's name, without its dtype and reduction; ``rel`` and ``ulp`` are the
error of the loss against the oracle, relative and in units in the last place; ``torch`` is the
error of PyTorch's own formula in ulp; ``input``, ``target`` and so on are the largest errors of an
element of their gradients in ulp, over all incoming gradients; ``verdict`` is the worst verdict of
all checks of the case, including those without a figure. A case for which only checks without a
figure ran, and passed, has no row. Implementation, dtype and reduction have a column if the run has
more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from losscli.cases import Case, distinct_names
from losscli.losses import ROW
from losscli.report.phrases import format_ulp
from losscli.report.tables import beside_case, shorten
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, Run, VerifyResult

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
"""Those of losscli/truth/tolerances.py, which needs torch."""
_WORST_FIRST = (FAIL, WARN, PASS, SKIPPED)

Group = Sequence[VerifyResult]
"""The checks of one implementation on one case."""


def table(run: Run, width: int | None) -> tuple[list[str], list[list[str]]]:
    """Return the headers and rows of the groups that ran, by case, within a width."""
    groups = [group for group in _groups(run) if _is_shown(group)]
    columns: dict[str, Callable[[Group], str]] = {
        "impl": lambda group: shorten(group[0].implementation),
        "dtype": lambda group: group[0].case.dtype,
        "reduce": lambda group: group[0].case.reduction,
        "rel": lambda group: _relative(_check(group, VALUE)),
        "ulp": lambda group: _ulp(_check(group, VALUE)),
        "torch": lambda group: _reference_ulp(_check(group, VALUE)),
    }
    for operand in dict.fromkeys(name for group in groups for name in _operands(group)):
        columns[operand] = partial(_gradient_ulp, operand=operand)
    columns[VERDICT] = _verdict
    for header in ("impl", "dtype", "reduce"):
        if len({columns[header](group) for group in groups}) < 2:
            del columns[header]
    rows: dict[str, list[list[str]]] = {}
    names = distinct_names(group[0].case for group in groups)
    for group in groups:
        cells = [cell(group) for cell in columns.values()]
        case = group[0].case
        rows.setdefault(_without_columns(case, names[case]), []).append(cells)
    return beside_case(list(columns), rows, width, LEAST_IMPORTANT)


def _results(run: Run) -> list[VerifyResult]:
    results = [result for result in run.results if isinstance(result, VerifyResult)]
    return [result for result in results if not result.shrunk_from]


def _groups(run: Run) -> list[Group]:
    """Gather the checks of each case and implementation, in the order they finished."""
    groups: dict[tuple[Case, str], list[VerifyResult]] = {}
    for result in _results(run):
        groups.setdefault((result.case, result.implementation), []).append(result)
    return list(groups.values())


def _is_shown(group: Group) -> bool:
    """Tell whether a group has a figure, a failure or a warning to show."""
    statuses = {result.status for result in group}
    if statuses & {FAIL, WARN}:
        return True
    figures = {VALUE, *(_check_of(operand) for operand in _operands(group))}
    return any(result.check in figures and result.status == PASS for result in group)


def _operands(group: Group) -> tuple[str, ...]:
    """Return the names of the operands that have a gradient."""
    return group[0].case.spec.differentiable


def _check_of(operand: str) -> str:
    """Return the name of the check of an operand's gradient."""
    return f"{operand}_gradient"


def _without_columns(case: Case, name: str) -> str:
    """Return the name of a case without the words that have a column or stand above the table."""
    return " ".join(word for word in name.split() if word not in (case.dtype, case.reduction))


def _check(group: Group, name: str) -> VerifyResult | None:
    return next((result for result in group if result.check == name), None)


def _relative(result: VerifyResult | None) -> str:
    if result is None or result.error.value_rel is None:
        return "-"
    return f"{result.error.value_rel:.1e}" if result.error.value_rel else "0"


def _ulp(result: VerifyResult | None) -> str:
    """Return the error of a loss or gradient and, after a slash, what passes in any case."""
    if result is None:
        return "-"
    ulp = result.error.grad_ulp if result.error.value_ulp is None else result.error.value_ulp
    return "-" if ulp is None else f"{format_ulp(ulp)}/{allowed_ulp(result):g}"


def allowed_ulp(result: VerifyResult) -> float:
    """Return the ULP with which a loss or gradient passes in any case; see truth/tolerances.py."""
    case = result.case
    if result.check == VALUE and case.reduction != "none":
        bar = VALUE_ULP
    else:
        rounded_once = case.spec.unit == ROW and case.dtype in ("float16", "bfloat16")
        bar = ONCE_ROUNDED_ULP if rounded_once else ELEMENT_ULP
    return max(bar, result.tolerance_ulp or 0.0)


def _gradient_ulp(group: Group, operand: str) -> str:
    return _ulp(_check(group, _check_of(operand)))


def _reference_ulp(result: VerifyResult | None) -> str:
    if result is None or result.reference_error.value_ulp is None:
        return "-"
    return format_ulp(result.reference_error.value_ulp)


def _verdict(group: Group) -> str:
    """Return the worst status, and a loosened tolerance without its reason."""
    statuses = [result.status for result in group]
    worst = next(status for status in _WORST_FIRST if status in statuses)
    loosened = next((result.tolerance for result in group if result.tolerance), "")
    tolerance = loosened.partition(":")[0]
    shown = worst.upper() if worst in (FAIL, WARN) else worst
    return f"{shown} ({tolerance})" if tolerance else shown
