"""The panel of the verdict: what a run comes to in one sentence, and what is to be known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import geometric_mean, median

from losscli.compare.cells import headline
from losscli.render.html.forest_plot import ratio
from losscli.render.html.measured import Measured
from losscli.render.html.panel import Note, Panel, State
from losscli.render.records import conclusion
from losscli.runs.columns import REFERENCE
from losscli.runs.records import FAIL, FAILED, SKIPPED, WARN, Run, VerifyResult
from losscli.views import bench
from losscli.views.phrases import count, first_of

_TITLE = "Verdict"
_NAMED = 4
"""Most names that a sentence lists."""


def of_bench(measured: Measured) -> Panel:
    """Return the verdict of a bench run."""
    results = measured.results
    failed = [r for r in results if r.status == FAILED]
    skipped = sum(r.status == SKIPPED for r in results)
    parts = [_faster(measured), _slower(measured), _near(measured)]
    if failed:
        names = ", ".join(dict.fromkeys(result.implementation for result in failed))
        parts.append(f"{count(len(failed), 'result')} of {names} failed")
    if skipped:
        parts.append(f"{count(skipped, 'result')} of {len(results)} skipped")
    said = "; ".join(part for part in parts if part) or "nothing was timed"
    return Panel("verdict", _TITLE, sentence=f"{said}.", notes=_notes(measured.run))


def of_checks(run: Run, results: Sequence[VerifyResult]) -> Panel:
    """Return the verdict of a verify run."""
    asked = [r for r in results if not r.shrunk_from]
    ran = [r for r in asked if r.status != SKIPPED]
    failed = [r for r in asked if r.status == FAIL]
    statuses = Counter(r.status for r in asked)
    names = dict.fromkeys(r.implementation for r in failed or ran)
    said = f"{', '.join(names) or 'nothing'}: "
    if failed:
        of = sum(r.implementation in names for r in ran)
        checks = first_of(dict.fromkeys(r.check for r in failed), _NAMED)
        losses = first_of(dict.fromkeys(r.case.loss for r in failed), _NAMED)
        said += f"{len(failed)} of {count(of, 'check')} failed, in {checks} of {losses}"
    else:
        cases = count(len({r.case for r in ran}), "case")
        said += f"all {count(len(ran), 'check')} of {cases} passed"
    if statuses[WARN]:
        said += f", {statuses[WARN]} with a warning"
    if statuses[SKIPPED]:
        said += f"; {count(statuses[SKIPPED], 'check')} skipped"
    state: State = "bad" if failed else "warn" if statuses[WARN] else "good"
    return Panel("verdict", _TITLE, sentence=f"{said}.", notes=_excluded(run), state=state)


def of_self_test(run: Run) -> Panel:
    """Return the verdict of a self-test, of the checks or of the timer."""
    sentence = conclusion(run).partition("\n")[0]
    return Panel("verdict", _TITLE, sentence=sentence, notes=_excluded(run))


def _faster(measured: Measured) -> str:
    """Say how many times as fast as the reference the subject is, for each pass."""
    speedups: list[str] = []
    for name, results in measured.by_pass.items():
        own = (r for r in results if r.implementation == measured.subjects[0])
        ratios = [found for r in own if (found := r.speedup.get(REFERENCE))]
        if ratios:
            fast = "" if speedups else " as fast as the reference"
            speedups.append(f"{ratio(geometric_mean(ratios))}{fast} {name}")
    if not speedups:
        return ""
    mean = "geometric mean" if len(speedups) == 1 else "geometric means"
    return f"{measured.subjects[0]} is {_listed(speedups)} ({mean})"


def _slower(measured: Measured) -> str:
    """Say in how many cells losscli is slower than a peer."""
    found = measured.run.headline or headline(measured.run)
    if not found:
        return ""
    cells = f"{count(found.cells, 'cell')} (a case and a pass)"
    if not found.slower:
        return f"it is slower than another implementation in none of {cells}"
    return f"it is slower than the best other implementation in {len(found.slower)} of {cells}"


def _near(measured: Measured) -> str:
    """Say what part of the limit the subject reaches beyond the cache."""
    size = measured.cache_bytes
    if not measured.timed or not size:
        return ""
    shares = [
        r.limit_share
        for r in measured.timed
        if r.implementation == measured.subjects[0] and r.limit_share and r.bytes > 4 * size
    ]
    if not shares:
        return ""
    return f"beyond the cache it reaches {100 * median(shares):.0f} % of the memory's limit"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _notes(run: Run) -> tuple[Note, ...]:
    """Return the notes of the report in the terminal: failures, skipped cases, disturbances."""
    lines = [
        f"slower than {cell.peer}, {cell.case}, {cell.pass_.replace('_', '+')}: {cell.ratio:.3f}x"
        for cell in (run.headline.slower if run.headline else ())
    ]
    lines += [" ".join(note.split()) for note in bench.notes(run)]
    return tuple(map(_note, lines)) + _excluded(run)


def _note(text: str) -> Note:
    """Return a note whose beginning, up to the first colon, is its title."""
    title, colon, rest = text.partition(": ")
    state: State = "bad" if text.startswith(("FAILED", "slower")) else ""
    return Note(title, rest, state) if colon else Note("", text, state)


def _excluded(run: Run) -> tuple[Note, ...]:
    cut = (Note("The last line of the file is cut off; results may be missing.", state="warn"),)
    return tuple(Note(str(each)) for each in run.excluded) + (cut if run.cut_off else ())
