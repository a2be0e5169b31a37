"""What `losscli compare` reports: what is slower, then the rows of each run.

A row is an implementation and pass of a case, in one mode and with one state of the caches, which
are named where they are not the default. ``new/base`` is the ratio of the medians: above 1 the new
run is slower. ``interval`` is its confidence interval. The verdict is ``slower`` or ``faster`` if
the interval excludes 1, ``same`` if it is within the threshold, otherwise ``inconclusive``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from losscli.cases.case import distinct_names
from losscli.compare.change import CONFIDENCE
from losscli.compare.comparison import Comparison, Mean, Row
from losscli.compare.figures import FIGURES
from losscli.compare.gate import Comparisons
from losscli.compare.rows import label, mode_and_cache
from losscli.runs.judgements import SLOWER, UNCLEAR
from losscli.runs.records import FAILED, SKIPPED, BenchResult, Run
from losscli.units import format_seconds
from losscli.views.bench import SHORT_PASSES
from losscli.views.document import Document, Notes, Part, Sentence, Table, case_table
from losscli.views.phrases import count, machine, shorten

LEAST_IMPORTANT = ("base", "new", "interval")
"""Columns that a narrow terminal goes without, the first one first."""
_LEGEND = (
    "new/base: the new time over that of the baseline, above 1 the new run is slower; interval: "
    "holds the next ratio too; same: within the threshold; inconclusive: too few or too noisy "
    "samples"
)
_NAMED = 10
"""Most rows that a list names."""


def view(compared: Comparisons, *, verbose: bool = False) -> Document:
    """Return the report of a comparison."""
    runs = {f"base: {compared.baseline}": compared.before}
    runs |= {f"new: {name}": one.after for name, one in compared.comparisons.items()}
    parts: list[Part | Table | Notes] = []
    several = len(compared.comparisons) > 1
    for name, one in compared.comparisons.items():
        blocks = tuple(_run(compared.baseline, name, one))
        parts += [Part(name, blocks)] if several else blocks
    return (
        *map(Sentence, _verdicts(compared)),
        Notes(_details(compared)),
        Notes([_caption(title, run) for title, run in runs.items()]),
        *parts,
        Notes([_LEGEND]),
    )


def _run(baseline: str, name: str, one: Comparison) -> Iterator[Table | Notes]:
    """Yield the tables and notes of one run."""
    yield Notes(
        [
            f"{'NOT COMPARABLE' if each.decisive else 'note'}: different {each}"
            for each in one.differences
        ]
    )
    yield _rows(one)
    headers = ["loss", "pass", "impl", "cases", "geometric mean of new/base"]
    yield Table(
        headers,
        [[m.loss, _pass(m), m.implementation, str(m.rows), f"{m.ratio:.3f}"] for m in one.means()],
    )
    text = FIGURES["memory"].text
    memory = [
        f"{row.name}: {text(before)}, then {text(after)}"
        for row, before, after in one.both("memory")
        if before != after
    ]
    yield Notes(_listed(f"other memory: {count(len(memory), 'row')}", memory))
    for where, found in ((baseline, one.only_before), (name, one.only_after)):
        names = [
            label(each.result) + (f" (in the other run {each.why})" if each.why else "")
            for each in found
        ]
        yield Notes(_listed(f"timed only in {where}: {count(len(found), 'row')}", names))
    yield Notes(_noise(one))


def _listed(title: str, rows: Sequence[str]) -> list[str]:
    """Return a title with its first rows below it; nothing without rows."""
    more = [f"and {len(rows) - _NAMED} more"] if len(rows) > _NAMED else []
    return [title, *(f"    {row}" for row in (*rows[:_NAMED], *more))] if rows else []


def _caption(title: str, run: Run) -> str:
    commit = run.environment.get("commit")
    return ", ".join(machine(run.environment, title, run.created, commit and f"commit {commit}"))


def _rows(one: Comparison) -> Table:
    headers = ["pass", "impl", "base", "new", "new/base", "interval", "verdict"]
    groups: dict[str, list[list[str]]] = {}
    names = distinct_names(row.after.case for row in one.rows)
    for row in one.rows:
        result = row.after
        cells = [_pass(result), shorten(result.implementation), _seconds(row.before)]
        cells += [_seconds(result), f"{row.ratio.value:.3f}"]
        cells += [f"{row.ratio.low:.3f}-{row.ratio.high:.3f}", verdict(row)]
        name = names[result.case]
        title = f"{name} ({result.table})" if result.table else name
        groups.setdefault(title, []).append(cells)
    return case_table(headers, groups, least=LEAST_IMPORTANT)


def verdict(row: Row) -> str:
    """Return the verdict on a row as people read it."""
    return {SLOWER: "SLOWER", UNCLEAR: "inconclusive"}.get(row.verdict, row.verdict)


def _pass(timed: BenchResult | Mean) -> str:
    """Return ``fwd``, or ``fwd host warm`` where mode and cache are not the usual."""
    return " ".join([SHORT_PASSES[timed.pass_], *mode_and_cache(timed.mode, timed.cache)])


def _seconds(result: BenchResult) -> str:
    return format_seconds(result.seconds.median) if result.seconds else ""


def _noise(one: Comparison) -> list[str]:
    """Return the noise behind the intervals, for each mode and cache if there are several."""
    lines = []
    for noise in one.noises:
        known = f"measured on {noise.controls} rows of PyTorch's own implementations"
        if noise.why:
            known = f"assumed, {noise.why}"
        if noise.from_processes:
            known = "measured by the spread between the processes of each run"
        where = f" ({noise.mode}, {noise.cache})" if len(one.noises) > 1 else ""
        line = f"noise from run to run{where}: {100 * noise.value:.1f} %, {known}"
        if noise.controls:
            off = f"{100 * noise.off:.1f} % in the median, {100 * noise.most_off:.1f} % at most"
            line += f"; the ratios of these controls are off by {off}"
        lines.append(line)
    return [*lines, f"all intervals hold together with {100 * CONFIDENCE:g} % confidence"]


def _verdicts(compared: Comparisons) -> list[str]:
    """Return what the comparison comes to: a sentence on the limit, and one on each run."""
    lines = []
    if compared.threshold is not None:
        found = len(compared.regressions())
        rows = count(found, "row") if found else "no row"
        if not found and compared.disturbed():
            rows = "no other row"
        what = f"slower by more than {100 * compared.threshold:g} % and beyond the measured noise"
        lines.append(f"{rows} {what}")
    for name, one in compared.comparisons.items():
        verdicts = Counter(verdict(row).lower() for row in one.rows)
        counts = sorted(f"{number} {word}" for word, number in verdicts.items())
        words = ", ".join([count(len(one.rows), "row"), *counts])
        lines.append(f"{name} against {compared.baseline}: {words}")
    return lines


def _details(compared: Comparisons) -> list[str]:
    """Return the rows that fail the comparison, or have to be measured again."""
    again = [row.name for _, row in compared.disturbed()]
    were = "was" if len(again) == 1 else "were"
    what = f"{count(len(again), 'row')} {were} timed while other programs used the machine"
    lines = _listed(f"AGAIN: {what}: measure again", again)
    if compared.regressions():
        lines.append("slower beyond the limit:")
        lines += [
            f"    {_of(compared, name)}{row.name}: {row.ratio.value:.3f} "
            f"({_seconds(row.before)}, then {_seconds(row.after)})"
            for name, row in compared.regressions()
        ]
    for name, one in compared.comparisons.items():
        lines += _lost(compared.baseline, name, one)
        if compared.threshold is not None and (noisy := one.undecided(compared.threshold)):
            where = f" of {name}" if len(compared.comparisons) > 1 else ""
            are = "is" if len(noisy) == 1 else "are"
            rows = count(len(one.rows) - one.controls, "row")
            change = f"too noisy to detect a change of {100 * compared.threshold:g} %"
            lines.append(f"{len(noisy)} of {rows}{where} {are} {change}")
    for figure, limit in compared.fail_on.limits.items():
        text, allowed = FIGURES[figure].text, FIGURES[figure].allowed(limit)
        found = [(name, each) for name, each in compared.grown() if each.figure == figure]
        rows = count(len(found), "row") if found else "no row"
        lines.append(f"{rows} with more {figure} than before, by more than {allowed}")
        lines += [
            f"    {_of(compared, name)}{each.row.name}: {text(each.before)}, then "
            f"{text(each.after)}"
            for name, each in found
        ]
    return [*lines, *_not_looked(compared)]


def _of(compared: Comparisons, name: str) -> str:
    return f"{name}: " if len(compared.comparisons) > 1 else ""


def _not_looked(compared: Comparisons) -> list[str]:
    """Return the rows that fail the comparison because they are missing or undecided."""
    lines = []
    if cut := compared.cut_off():
        lines.append(f"FAILED: the last line of {', '.join(cut)} is cut off; results are missing")
    missing, undecided = compared.missing(), compared.undecided()
    if missing:
        rows = _counted([each.result.implementation for _, each in missing], "missing")
        names = [label(each.result) for _, each in missing]
        lines += _listed(f"FAILED: {rows}; --no-fail-on-missing accepts that", names)
    accepts = "--no-fail-on-undecided accepts that"
    if undecided:
        rows = _counted([row.after.implementation for _, row in undecided], "undecided")
        lines.append(f"FAILED: {rows}; {accepts}")
    elif blind := compared.blind():
        lines.append(f"FAILED: no row of {', '.join(blind)} could be judged; {accepts}")
    for name, figure, lost in compared.unmeasured():
        what = f"no row of {name} and {compared.baseline} has {figure}"
        if lost:
            names = list(dict.fromkeys(row.after.implementation for row in lost))
            what = f"{count(len(lost), 'row')} of {', '.join(names)} lost its {figure}"
        lines.append(f"FAILED: {what}; {accepts}")
    return lines


def _counted(implementations: Iterable[str], state: str) -> str:
    """Return ``3 rows of custom, reference are missing``."""
    found = list(implementations)
    are = "is" if len(found) == 1 else "are"
    return f"{count(len(found), 'row')} of {', '.join(dict.fromkeys(found))} {are} {state}"


def _lost(baseline: str, name: str, one: Comparison) -> list[str]:
    """Return how many rows of the baseline were not timed again, and the failed ones by name."""
    if not (missing := one.only_before):
        return []
    statuses = Counter(each.status or "absent" for each in missing)
    counts = ((statuses[status], status) for status in (FAILED, SKIPPED, "absent"))
    why = ", ".join(f"{number} {status}" for number, status in counts if number)
    were = "was" if len(missing) == 1 else "were"
    line = f"{count(len(missing), 'row')} of {baseline} {were} not timed in {name} ({why})"
    return [line, *(f"    FAILED {label(each.result)}: {each.reason}" for each in one.broken)]
