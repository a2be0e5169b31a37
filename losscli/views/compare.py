"""The report of `losscli compare`: what is slower, the rows of each run, and their plots."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import geometric_mean

from losscli.compare.comparison import Comparison
from losscli.compare.gate import ComparedRow, ComparedRun, ComparisonRecord, Comparisons, record_of
from losscli.compare.metrics import MEMORY, METRICS
from losscli.compare.noise import CONFIDENCE
from losscli.compare.row_keys import in_table, label, long_name, mode_and_cache
from losscli.runs.grouping import grouped
from losscli.runs.judgements import SLOWER, UNCLEAR, Judgement
from losscli.runs.records import FAILED, SKIPPED
from losscli.units import format_seconds
from losscli.views.document import Document, Notes, Part, Plot, Point, Sentence, Table, case_table
from losscli.views.phrases import count, listed, machine, short_pass, shorten, slug

MOST_CHANGED = 16
"""Most rows of a comparison that a plot has; folded plots have all rows."""
_LEGEND = (
    "new/base: the new time divided by that of the base, above 1 the new run is slower; "
    "interval: where the ratio of two more such runs would be; same: within the threshold; "
    "inconclusive: too few or too noisy samples"
)


def view(compared: Comparisons) -> Document:
    """Return the report of a new comparison."""
    runs = {f"base: {compared.baseline}": compared.before}
    runs |= {f"new: {name}": one.after for name, one in compared.comparisons.items()}
    record, failures = record_of(compared), (Notes(_failures(compared)),)
    verdicts = tuple(_verdicts(record, "other " * bool(compared.disturbed())))
    answer = verdicts + failures if compared.regressions() else failures + verdicts
    captions = []
    for title, run in runs.items():
        commit = f"commit {run.environment['commit']}" if run.environment.get("commit") else ""
        captions.append(", ".join(machine(run.environment, title, run.created, commit)))
    return *answer, Notes(_details(compared)), Notes(captions), *_parts(record)


def of_record(record: ComparisonRecord) -> Document:
    """Return the report of a comparison read from a file."""
    regressions = _regressions(record)
    why = Sentence("FAILED: rows are missing, undecided, failed or larger")
    failed = [why] * (record.failed and not regressions)
    return *failed, *_verdicts(record), Notes(regressions), *_parts(record)


def _parts(record: ComparisonRecord) -> Iterator[Part | Table | Notes]:
    for one in record.comparisons:
        blocks = tuple(_run(record.baseline, one))
        yield from [Part(one.run, blocks)] if len(record.comparisons) > 1 else blocks
    yield Notes([_LEGEND])


def _run(baseline: str, one: ComparedRun) -> Iterator[Table | Notes]:
    words = {True: "NOT COMPARABLE", False: "note"}
    yield Notes([f"{words[each.decisive]}: different {each}" for each in one.differences])
    yield _rows(one)
    headers = ["loss", "pass", "impl", "conclusive cases", "geometric mean of new/base"]
    yield Table(headers, list(_means(one)))
    text = METRICS[MEMORY].text
    memory = [
        f"{label(row)}: {text(before)}, then {text(after)}"
        for row in one.rows
        if (before := row.peak_extra_bytes_before) is not None
        and (after := row.peak_extra_bytes_after) is not None
        and before != after
    ]
    yield Notes(listed(f"other memory: {count(len(memory), 'row')}", memory))
    for where, found in ((baseline, one.only_before), (one.run, one.only_after)):
        whys = [f" (in the other run {each.reason})" * bool(each.reason) for each in found]
        names = [label(each) + why for each, why in zip(found, whys, strict=True)]
        yield Notes(listed(f"timed only in {where}: {count(len(found), 'row')}", names))
    yield Notes(_noise(one))


def _means(one: ComparedRun) -> Iterator[list[str]]:
    conclusive = (row for row in one.rows if row.verdict != UNCLEAR)

    def key(row: ComparedRow) -> tuple[str, str, str]:
        pass_ = short_pass(row.pass_, row.mode, row.cache)
        return row.case.partition(" ")[0], pass_, row.implementation

    for alike, rows in grouped(conclusive, key).items():
        yield [*alike, str(len(rows)), f"{geometric_mean(row.ratio for row in rows):.3f}"]


def _rows(one: ComparedRun) -> Table:
    headers = ["pass", "impl", "base", "new", "new/base", "interval", "verdict"]
    rows = []
    for row in one.rows:
        cells = [in_table(row.case, row.table)]
        cells += [short_pass(row.pass_, row.mode, row.cache), shorten(row.implementation)]
        cells += [_seconds(row.seconds_before), _seconds(row.seconds_after), f"{row.ratio:.3f}"]
        cells += [f"{row.ratio_low:.3f}-{row.ratio_high:.3f}", _verdict(row.verdict)]
        rows.append(cells)
    return case_table(headers, rows, least=("base", "new", "interval"))


def _verdict(verdict: Judgement) -> str:
    return {SLOWER: "SLOWER", UNCLEAR: "inconclusive"}.get(verdict, verdict)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _noise(one: ComparedRun) -> list[str]:
    lines = []
    for noise in one.noises:
        known = f"measured on {noise.controls} rows of PyTorch's own implementations"
        if noise.from_processes:
            known = "measured by the spread between the processes of each run"
        elif noise.why:
            known = f"assumed, {noise.why}"
        where = f" ({noise.mode}, {noise.cache})" if len(one.noises) > 1 else ""
        line = f"noise from run to run{where}: {100 * noise.value:.1f} %, {known}"
        if noise.controls:
            off = f"{100 * noise.off:.1f} % in the median, {100 * noise.most_off:.1f} % at most"
            line += f"; new/base of these rows is off by {off}"
        lines.append(line)
    return [*lines, f"all intervals hold at once with {100 * CONFIDENCE:g} % confidence"]


def _verdicts(record: ComparisonRecord, other: str = "") -> list[Sentence]:
    lines = []
    if record.threshold is not None:
        found = sum(row.regression for one in record.comparisons for row in one.rows)
        rows = f"FAILED: {count(found, 'row')}" if found else f"no {other}row"
        slower = f"slower by more than {100 * record.threshold:g} % and beyond the measured noise"
        lines.append(Sentence(f"{rows} {'is' if found < 2 else 'are'} {slower}"))
    for one in record.comparisons:
        verdicts = Counter(_verdict(row.verdict).lower() for row in one.rows)
        counts = sorted(f"{number} {word}" for word, number in verdicts.items())
        words = ", ".join([count(len(one.rows), "row"), *counts])
        said = f"{one.run} against {record.baseline}: {words}"
        lines.append(Sentence(said, "warn" if verdicts[SLOWER] else ""))
    return lines


def _regressions(record: ComparisonRecord) -> list[str]:
    several = len(record.comparisons) > 1
    found = [
        f"    {f'{one.run}: ' * several}{label(row)}: {row.ratio:.3f} "
        f"({_seconds(row.seconds_before)}, then {_seconds(row.seconds_after)})"
        for one in record.comparisons
        for row in one.rows
        if row.regression
    ]
    return ["slower:", *found] if found else []


def _details(compared: Comparisons) -> list[str]:
    several = len(compared.comparisons) > 1
    lines = _regressions(record_of(compared))
    for name, one in compared.comparisons.items():
        lines += _lost(compared.baseline, name, one)
        if noisy := one.undecided(compared.fail_on.threshold):
            rows = count(len(one.rows) - one.controls, "row") + f" of {name}" * several
            are = "is" if len(noisy) == 1 else "are"
            change = f"too noisy to detect a change of {100 * compared.fail_on.threshold:g} %"
            lines.append(f"{len(noisy)} of {rows} {are} {change}")
    limits = compared.fail_on.limits.items()
    kept = (each for each in limits if not compared.grown(each[0]))
    return lines + [f"no row with {_more(metric, limit)}" for metric, limit in kept]


def _more(metric: str, limit: float) -> str:
    return f"more {metric} than before, by more than {METRICS[metric].allowed(limit)}"


def _failures(compared: Comparisons) -> list[str]:
    """Return what fails the comparison, but for rows that are slower, and what to measure again."""
    lines = []
    several = len(compared.comparisons) > 1
    for metric, limit in compared.fail_on.limits.items():
        if found := compared.grown(metric):
            lines.append(f"FAILED: {count(len(found), 'row')} with {_more(metric, limit)}")
        for name, row in found:
            values = ", then ".join(map(METRICS[metric].text, row.both(metric) or ()))
            lines.append(f"    {f'{name}: ' * several}{label(row.after)}: {values}")
    lines += [
        f"FAILED: {count(len(one.broken), 'row')} of {compared.baseline} failed in {name}"
        for name, one in compared.comparisons.items()
        if compared.fail_on.gates and one.broken
    ]
    if cut := compared.cut_off():
        lines.append(f"FAILED: the last line of {', '.join(cut)} is cut off; results are missing")
    if missing := compared.missing():
        rows = _counted([each.implementation for _, each in missing], "missing")
        names = [label(each) for _, each in missing]
        lines += listed(f"FAILED: {rows}; --no-fail-on-missing accepts that", names)
    accepts = "--no-fail-on-undecided accepts that"
    if undecided := compared.undecided():
        names = [row.after.implementation for _, row in undecided]
        rows = _counted(names, "too noisy to rule out a slowdown")
        lines.append(f"FAILED: {rows}; {accepts}")
    elif blind := compared.blind():
        lines.append(f"FAILED: no row of {', '.join(blind)} could be judged; {accepts}")
    for name, metric, lost in compared.unmeasured():
        what = f"no row of {name} and {compared.baseline} has {metric}"
        if lost:
            names = list(dict.fromkeys(row.after.implementation for row in lost))
            what = f"{count(len(lost), 'row')} of {', '.join(names)} lost its {metric}"
        lines.append(f"FAILED: {what}; {accepts}")
    again = [label(row.after) for _, row in compared.disturbed()]
    were = "was" if len(again) == 1 else "were"
    what = f"{count(len(again), 'row')} {were} timed while other programs used the machine"
    return [*lines, *listed(f"MEASURE AGAIN: {what}", again)]


def _counted(found: Sequence[str], state: str) -> str:
    """Return ``3 rows of custom, reference are missing``."""
    are = "is" if len(found) == 1 else "are"
    return f"{count(len(found), 'row')} of {', '.join(dict.fromkeys(found))} {are} {state}"


def _lost(baseline: str, name: str, one: Comparison) -> list[str]:
    if not (missing := one.only_before):
        return []
    statuses = Counter(each.status or "absent" for each in missing)
    counts = ((statuses[status], status) for status in (FAILED, SKIPPED, "absent"))
    why = ", ".join(f"{number} {status}" for number, status in counts if number)
    were = "was" if len(missing) == 1 else "were"
    line = f"{count(len(missing), 'row')} of {baseline} {were} not timed in {name} ({why})"
    broken = [(label(each), each.reason.removeprefix(f"{FAILED}: ")) for each in one.broken]
    return [line, *(f"    FAILED {row}: {reason}" for row, reason in broken)]


def plots_of(one: ComparedRun, name: str) -> Document:
    """Return a plot for each pass of the rows that changed most, and folded plots of all."""
    known = [row for row in one.rows if row.ratio > 0 and row.ratio_low > 0]
    changed = sorted(known, key=lambda row: -max(row.ratio, 1 / row.ratio))[:MOST_CHANGED]
    known.sort(key=lambda row: (len(row.pass_), row.pass_))
    changed.sort(key=lambda row: (len(row.pass_), row.pass_, -row.ratio))
    many = len(known) > MOST_CHANGED

    def plot(key: str, title: str, rows: Sequence[ComparedRow]) -> Plot:
        by_name = grouped(rows, lambda row: row.implementation)
        points = {each: map(_change, own) for each, own in by_name.items()}
        sides = ("faster", "slower than the baseline")
        return Plot.forest(f"{name}-{key}", title, points, band=one.noise, sides=sides)

    found: list[Plot | Part] = [
        plot(slug(pass_), f"Time over the baseline's, {long_name(pass_)}", rows)
        for pass_, rows in grouped(changed if many else known, lambda row: row.pass_).items()
    ]
    for pass_, rows in grouped(known, lambda row: row.pass_).items() if many else ():
        each = (
            plot(f"{slug(pass_)}-{slug(loss)}", f"{loss}, {long_name(pass_)}", of)
            for loss, of in grouped(rows, lambda row: row.case.partition(" ")[0]).items()
        )
        title = f"All {count(len(rows), 'row')}, {long_name(pass_)}"
        found.append(Part(title, tuple(each), folded=True))
    return tuple(found)


def _change(row: ComparedRow) -> Point:
    label = " ".join([row.case, *mode_and_cache(row.mode, row.cache)])
    return Point(in_table(label, row.table), row.ratio, low=row.ratio_low, high=row.ratio_high)
