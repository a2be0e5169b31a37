"""The panel of the verdict: what a run comes to in one sentence, and what is to be known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import geometric_mean, median

from losscli.compare.peers import headline
from losscli.report import bench_table, selftest_table, timer_test_table
from losscli.report.bench_table import REFERENCE
from losscli.report.html.forest_plot import ratio
from losscli.report.html.measured import Measured
from losscli.report.html.panel import Finding, Panel, State
from losscli.report.phrases import count
from losscli.runs.records import FAIL, FAILED, SKIPPED, WARN, Run, VerifyResult

_TITLE = "Verdict"
_NAMED = 4
"""Most names that a sentence lists."""


def of_bench(measured: Measured) -> Panel:
    """Return the verdict of a bench run."""
    results = measured.results
    failed = [r for r in results if r.status == FAILED]
    skipped = sum(r.status == SKIPPED for r in results)
    facts = [*_faster(measured), *_slower(measured), *_near(measured)]
    ending = []
    if failed:
        ending.append(f"{count(len(failed), 'result')} of {_names(failed)} failed")
    if skipped:
        ending.append(f"{count(skipped, 'result')} of {len(results)} skipped")
    said = "; ".join([*facts, *ending])
    return Panel(
        "verdict", _TITLE, sentence=f"{said or 'nothing was timed'}.", findings=_notes(measured.run)
    )


def of_checks(run: Run, results: Sequence[VerifyResult]) -> Panel:
    """Return the verdict of a verify run."""
    asked = [r for r in results if not r.shrunk_from]
    ran = [r for r in asked if r.status != SKIPPED]
    names = ", ".join(dict.fromkeys(r.implementation for r in ran)) or "nothing"
    statuses = Counter(r.status for r in asked)
    cases = count(len({r.case for r in ran}), "case")
    if statuses[FAIL]:
        failed = [r for r in asked if r.status == FAIL]
        checks = _some(dict.fromkeys(r.check for r in failed))
        losses = _some(dict.fromkeys(r.case.loss for r in failed))
        own = dict.fromkeys(r.implementation for r in failed)
        names = ", ".join(own)
        ran = [r for r in ran if r.implementation in own]
        of = f"of {count(len(ran), 'check')}"
        said = f"{names}: {statuses[FAIL]} {of} failed, in {checks} of {losses}"
    else:
        said = f"{names}: all {count(len(ran), 'check')} of {cases} passed"
    if statuses[WARN]:
        said += f", {statuses[WARN]} with a warning"
    if statuses[SKIPPED]:
        said += f"; {count(statuses[SKIPPED], 'check')} skipped"
    state: State = "bad" if statuses[FAIL] else "warn" if statuses[WARN] else "good"
    return Panel("verdict", _TITLE, sentence=f"{said}.", findings=_excluded(run), state=state)


def of_self_test(run: Run) -> Panel:
    """Return the verdict of a self-test, of the checks or of the timer."""
    table = selftest_table if run.kind == "self-test" else timer_test_table
    return Panel("verdict", _TITLE, sentence=table.summary(run), findings=_excluded(run))


def _faster(measured: Measured) -> list[str]:
    """Say how many times as fast as the reference the subject is, for each pass."""
    if not measured.timed:
        return []
    subject = measured.subjects[0]
    told: list[str] = []
    for name, results in measured.ways.items():
        found = [r.speedup.get(REFERENCE) for r in results if r.implementation == subject]
        ratios = [each for each in found if each]
        if ratios:
            fast = "" if told else " as fast as the reference"
            told.append(f"{ratio(geometric_mean(ratios))}{fast} {name}")
    if not told:
        return []
    mean = "geometric mean" if len(told) == 1 else "geometric means"
    return [f"{subject} is {_listed(told)} ({mean})"]


def _slower(measured: Measured) -> list[str]:
    """Say in how many cells losscli is slower than a peer, or what the ratios come to."""
    found = measured.run.headline or headline(measured.run)
    if found:
        cells = f"{count(found.cells, 'cell')} (a case and a pass)"
        if not found.slower:
            return [f"it is slower than another implementation in none of {cells}"]
        return [
            f"it is slower than the best other implementation in {len(found.slower)} of {cells}"
        ]
    return []


def _near(measured: Measured) -> list[str]:
    """Say what part of the limit the subject reaches beyond the cache."""
    if not measured.timed:
        return []
    subject, size = measured.subjects[0], measured.cache_bytes or 0
    shares = [
        r.limit_share
        for r in measured.timed
        if r.implementation == subject and r.limit_share and r.bytes > 4 * size
    ]
    if not shares or not size:
        return []
    return [f"beyond the cache it reaches {100 * median(shares):.0f} % of the memory's limit"]


def _names(results: Sequence[object]) -> str:
    names = Counter(getattr(result, "implementation", "") for result in results)
    return ", ".join(names)


def _some(words: Iterable[str]) -> str:
    """Return the first names, and how many there are more."""
    named = list(words)
    rest = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"{', '.join(named[:_NAMED])}{rest}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _notes(run: Run) -> tuple[Finding, ...]:
    """Return the notes of the report in the terminal: failures, skipped cases, disturbances."""
    notes = [" ".join(note.split()) for note in bench_table.notes(run)]
    slower = [
        f"slower than {loss.peer}, {loss.case}, {loss.pass_.replace('_', '+')}: {loss.ratio:.3f}x"
        for loss in (run.headline.slower if run.headline else ())
    ]
    return tuple(map(_finding, slower + notes)) + _excluded(run)


def _finding(note: str) -> Finding:
    """Return a note whose beginning, up to the first colon, is its title."""
    title, colon, rest = note.partition(": ")
    state: State = "bad" if note.startswith(("FAILED", "slower")) else ""
    return Finding(title, rest, state) if colon else Finding("", note, state)


def _excluded(run: Run) -> tuple[Finding, ...]:
    cut = (Finding("The last line of the file is cut off; results may be missing.", state="warn"),)
    return tuple(Finding(str(each)) for each in run.excluded) + (cut if run.cut_off else ())
