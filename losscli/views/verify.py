"""The report of `losscli verify`: how many checks fail, the first failure in full, two tables."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isfinite

from losscli.cases.case import Case, distinct_names
from losscli.losses import ROW
from losscli.runs.grouping import grouped
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, Run, VerifyResult, VerifyStatus
from losscli.units import first_of, format_ulp
from losscli.verify import repeating
from losscli.views.document import Document, Notes, Part, Sentence, Table, case_table
from losscli.views.phrases import caption, count, shorten, skips

FEW_ROWS = 12
_HINT = "-v shows every check, why checks were skipped, and what the columns mean"

Results = Sequence[VerifyResult]


def view(run: Run, *, verbose: bool = False) -> Document:
    """Return the report of a verify run."""
    results = asked(run)
    failed = any(result.status == FAIL for result in results)
    shown, more = _checks(results, everything=verbose or not failed)
    measured = _errors_table(results)
    if not verbose and (failed or len(measured.rows) > FEW_ROWS):
        measured = Table((), ())
    legend = _legend(results, measured) if verbose else _HINT
    return (
        Sentence(_summary(results)),
        Notes(_failures(run, verbose=verbose)),
        Part(caption(run), (shown, Notes(more), measured, Notes([legend]))),
        Notes([*(reasons(run) if verbose else _unfit(run)), *map(str, run.excluded)]),
    )


def _summary(results: Results) -> str:
    statuses = Counter(result.status for result in results)
    cases = {r.case for r in results if r.status != SKIPPED}
    largest = _largest_ulp(results)
    failed = statuses[FAIL]
    counts = [f"{count(failed, 'check')} FAILED"] * bool(failed)
    counts += [f"{count(statuses[PASS], 'check')} of {count(len(cases), 'case')} passed"]
    counts += [count(statuses[WARN], "warning"), *["0 failed"] * (not failed)]
    counts += [f"{statuses[SKIPPED]} skipped"]
    return f"verify: {', '.join(counts)}{f'; largest error {largest}' if largest else ''}"


def _failures(run: Run, *, verbose: bool) -> list[str]:
    found = [each for each in alike(run.of(VerifyResult)) if verbose or each[0].status != PASS]
    shown = found if verbose else found[:1]  # the first failure, else the first warning
    blocks = [_note(*each) for each in shown]
    for status in (FAIL, WARN):
        if others := [each for each, *_ in found[len(shown) :] if each.status == status]:
            named = first_of([_named(each, shown[0][0]) for each in others], 4)
            does = status if len(others) > 1 else f"{status}s"
            blocks.append([f"{count(len(others), 'more check')} {does} (-v): {named}"])
    return [line for block in blocks for line in ("", *block)][1:]


def alike(results: Results) -> Iterator[tuple[VerifyResult, int, int]]:
    """Yield each implementation's smallest failure of a check and loss, then warnings and passes.

    Each comes with two numbers of cases: those that fail so, and those that the check ran on.
    """

    def key(result: VerifyResult) -> tuple[str, str, str]:
        return result.implementation, result.check, result.case.loss

    everything = grouped(results, key)
    for status in (FAIL, WARN, PASS):
        shown = (result for result in results if result.status == status and result.reason)
        for which, group in grouped(shown, key).items():
            smallest = min(group, key=lambda result: result.case.elements)
            yield smallest, sum(map(_counts, group)), sum(map(_counts, everything[which]))


def _note(smallest: VerifyResult, cases: int, of: int) -> list[str]:
    status = smallest.status
    name = f"{smallest.case.name}, {smallest.implementation}, {smallest.check}"
    said = {FAIL: "Fails", WARN: "Warns"}.get(status, "The same")
    more = [f"{said} in {cases} of {of} cases"] if cases > 1 else []
    more += [f"Shrunk from {smallest.shrunk_from}"] if smallest.shrunk_from else []
    text = ". ".join([f"{status.upper()} {name}: {smallest.told}", *more])
    again = repeating.line(smallest)
    return [text] if status == PASS or not again else [f"{text}. To repeat it in Python:", again]


def _named(result: VerifyResult, shown: VerifyResult) -> str:
    of = f" of {result.case.loss}" * (result.case.loss != shown.case.loss)
    by = f" ({result.implementation})" * (result.implementation != shown.implementation)
    return f"{result.check}{of}{by}"


def reasons(run: Run) -> list[str]:
    """Return the reasons of loosened tolerances and skipped checks."""
    results = run.of(VerifyResult)
    loosened = (r for r in results if ":" in r.tolerance)
    texts = [f"{r.case.loss} has a tolerance of {r.tolerance}" for r in loosened]
    said = "is measured in ulp of the largest term of each element"
    texts += [f"{r.case.loss} {said}: {r.terms}" for r in results if r.terms]
    return [*dict.fromkeys(texts), *skips(results)]


def _unfit(run: Run) -> list[str]:
    results = run.of(VerifyResult)
    ran = {result.case for result in results if result.status != SKIPPED}
    return skips(result for result in results if result.case not in ran)


def _checks(results: Results, *, everything: bool) -> tuple[Table, list[str]]:
    by_check = grouped(results, lambda result: result.check)
    bad = {c: of for c, of in by_check.items() if everything or _worst(of) in (FAIL, WARN)}
    losses = dict.fromkeys(r.case.loss for of in bad.values() for r in of)
    rows = [[check, *(_cell(of, loss) for loss in losses)] for check, of in bad.items()]
    if everything:
        return Table(["check", *losses], rows, splits=True), []
    left = len(by_check) - len(bad)
    more = [f"{count(left, 'other check')} passed or skipped (-v)"] * bool(left)
    more += [f"{len(rows) - FEW_ROWS} more rows (-v)"] * (len(rows) > FEW_ROWS)
    return Table(["check", *losses], rows[:FEW_ROWS], splits=True), more


def _legend(results: Results, measured: Table) -> str:
    statuses = {result.status for result in results}
    parts = ["pass N, U ulp: N cases passed, with the largest error in units in the last place"]
    parts += ["FAIL M/N: M of N cases failed"] * (FAIL in statuses)
    parts += ["WARN M/N: M of N cases are less accurate than they could be"] * (WARN in statuses)
    parts.append("-: does not apply")
    return "; ".join([*parts, *[LEGEND] * bool(measured.rows)])


def _counts(result: VerifyResult) -> bool:
    return result.status != SKIPPED and not result.shrunk_from


def _cell(of_check: Results, loss: str) -> str:
    if all(result.status == SKIPPED for result in of_check):
        return "skipped"  # once for all losses, where the device is why
    if not (ran := [r for r in of_check if r.case.loss == loss and r.status != SKIPPED]):
        return "skipped" if any(r.case.loss == loss for r in of_check) else "-"
    status: VerifyStatus = _worst(ran)
    bad = sum(result.status == status for result in ran)
    text = f"pass {len(ran)}" if status == PASS else f"{status.upper()} {bad}/{len(ran)}"
    return ", ".join(part for part in (text, _largest_ulp(ran)) if part)


def _largest_ulp(results: Results) -> str:
    # A finite number that passes where an infinity is as right is infinitely many ulp off.
    known = ((r.error.ulp, r.status) for r in results if r.error.ulp is not None)
    ulps = [ulp for ulp, status in known if isfinite(ulp) or status == FAIL]
    return f"{format_ulp(max(ulps))} ulp" if ulps else ""


VALUE = "value"
"""The check of the loss, which has columns, as each operand's gradient has."""
LEGEND = (
    "rel: the relative error of the loss; ulp: its error in units in the last place / the error "
    "that always passes; torch: the error in ulp of PyTorch's own formula; input, target and so "
    "on: the largest error in ulp of an element of that gradient / what is allowed"
)
ELEMENT_ULP, ONCE_ROUNDED_ULP, VALUE_ULP = 4.0, 1.0, 2.0
"""As in losscli/truth/tolerances.py, which needs torch."""


def asked(run: Run) -> list[VerifyResult]:
    """Return the results without those that shrink another failure."""
    return [result for result in run.of(VerifyResult) if not result.shrunk_from]


def by_case(results: Results) -> dict[tuple[Case, str], list[VerifyResult]]:
    """Return each case and implementation's checks in the order they finished."""
    return grouped(results, lambda result: (result.case, result.implementation))


def _worst(results: Results) -> VerifyStatus:
    statuses = {result.status for result in results}
    return next(status for status in (FAIL, WARN, PASS, SKIPPED) if status in statuses)


def _check(results: Results, name: str) -> VerifyResult | None:
    """Return the result of a check, or of an operand's gradient, if it ran."""
    return next((each for each in results if each.check in (name, f"{name}_gradient")), None)


def _errors_table(results: Results) -> Table:
    cases = {key: checks for key, checks in by_case(results).items() if _is_shown(checks)}
    columns: dict[str, Callable[[Results], str]] = {
        "impl": lambda checks: shorten(checks[0].implementation),
        "dtype": lambda checks: checks[0].case.dtype,
        "reduce": lambda checks: checks[0].case.reduction,
        "rel": lambda checks: _relative(_check(checks, VALUE)),
        "ulp": partial(_ulp, operand=VALUE),
        "torch": lambda checks: (
            (format_ulp(r.reference_error.value_ulp) if (r := _check(checks, VALUE)) else "") or "-"
        ),
    }
    for operand in dict.fromkeys(name for case, _ in cases for name in case.spec.differentiable):
        columns[operand] = partial(_ulp, operand=operand)
    columns["verdict"] = _worst_status
    for header in ("impl", "dtype", "reduce"):
        if len({columns[header](checks) for checks in cases.values()}) < 2:
            del columns[header]
    names = distinct_names(case for case, _ in cases)
    rows = []
    for (case, _), checks in cases.items():
        # The other words have a column, or are above the table.
        words = (w for w in names[case].split() if w not in (case.dtype, case.reduction))
        rows.append([" ".join(words), *(cell(checks) for cell in columns.values())])
    return case_table(list(columns), rows, least=("rel", "torch", "reduce", "dtype"))


def _is_shown(checks: Results) -> bool:
    figures = (_check(checks, name) for name in (VALUE, *checks[0].case.spec.differentiable))
    return _worst(checks) in (FAIL, WARN) or any(each and each.status == PASS for each in figures)


def _relative(result: VerifyResult | None) -> str:
    if result is None or result.error.value_rel is None:
        return "-"
    return f"{result.error.value_rel:.1e}" if result.error.value_rel else "0"


def _ulp(checks: Results, operand: str) -> str:
    if (result := _check(checks, operand)) is None or result.error.ulp is None:
        return "-"
    return f"{format_ulp(result.error.ulp)}/{_allowed_ulp(result):g}"


def _allowed_ulp(result: VerifyResult) -> float:
    """Return the ULP with which a loss or gradient always passes; see truth/tolerances.py."""
    case = result.case
    rounded_once = case.spec.unit == ROW and case.dtype in ("float16", "bfloat16")
    bar = ONCE_ROUNDED_ULP if rounded_once else ELEMENT_ULP
    if result.check == VALUE and case.reduction != "none":
        bar = VALUE_ULP
    return max(bar, result.tolerance_ulp or 0.0)


def _worst_status(checks: Results) -> str:
    status = _worst(checks)
    loosened = next((result.tolerance for result in checks if result.tolerance), "")
    tolerance = loosened.partition(":")[0]
    shown = status.upper() if status in (FAIL, WARN) else status
    return f"{shown} ({tolerance})" if tolerance else shown
