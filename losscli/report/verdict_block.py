"""Verdicts for people: a block for each, and a closing table for many."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from losscli.errors import one_line
from losscli.implementations.sandbox.isolation_parts import NAMES
from losscli.judge.verdict import Verdict, speedup
from losscli.judge.verdict_parts import REFERENCE, Accuracy, JudgeReason, mark, word_of
from losscli.losses import EVERY_LOSS
from losscli.reasons import FACETS, WORDS, Code
from losscli.render.text import GAP, WIDTH, fill, fit_case, lay_out, left_out
from losscli.runs.columns import COLUMNS, MARKS
from losscli.runs.grouping import grouped
from losscli.runs.judgements import IMPOSSIBLE
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN
from losscli.units import format_bytes, format_duration, format_seconds, format_ulp
from losscli.views.document import case_table
from losscli.views.phrases import SHORT_PASSES, count

INDENT = "  "
WIDEST_FILE = 44
SHARE, MEMORY = COLUMNS["limit"], COLUMNS["memory"]
LEAST_IMPORTANT = (MEMORY.header, SHARE.header)
_STATUSES = {PASS: "passed", WARN: "warned", FAIL: "failed", SKIPPED: "skipped"}
_NO_GRADIENT = {True: "", False: "none, so it cannot be used in training", None: "not tested"}
SAME_BITS = {True: "yes", False: "no: runs differ", None: "not tested"}


def block(verdict: Verdict, width: int = WIDTH) -> str:
    """Return the block of a verdict, with its table within a width."""
    lines = [_title(verdict)]
    reasons = verdict.reasons
    if verdict.cause:
        lines += _wrapped(f"cause: {verdict.cause}", 1)
    if reasons and verdict.word != "RIGHT":
        lines += _reason(reasons[0])
    if more := [r for r in reasons[1:] if word_of([r]) == verdict.word and not verdict.right]:
        told = ", ".join(dict.fromkeys(r.check or _words(r.code) for r in more))
        lines += _wrapped(f"+ {count(len(more), 'more reason')}: {told}", 1)
    for note in verdict.notes:
        lines += _wrapped(f"note: {note}", 1)
    widest = max(map(len, FACETS)) + 2
    for facet, text in verdict.facets.items():
        told = textwrap.shorten(one_line(text), WIDTH - widest - len(INDENT), placeholder="…")
        lines.append(f"{INDENT}{facet.replace('_', ' '):<{widest}}{told}")
    checks = (f"{n} {word}" for key, word in _STATUSES.items() if (n := verdict.checks.get(key)))
    dtypes = ", ".join(verdict.dtypes)
    given = dtypes and verdict.against not in EVERY_LOSS  # by a Model
    isolation = "complete" if {*NAMES} <= {*verdict.isolation} else ", ".join(verdict.isolation)
    parts = {
        "dtypes": f"{dtypes}, of get_inputs or of --dtype" if given else dtypes,
        "checks": ", ".join(checks),
        "accuracy": _accuracy(verdict.accuracy),
        "bitwise deterministic": SAME_BITS[verdict.accuracy.deterministic],
        "gradient": _NO_GRADIENT[verdict.trains],
        "speed": "" if verdict.speed else "not tested",
        "written in": ", ".join(verdict.languages),
        "tuned": f"in {format_duration(tuned)}" if (tuned := verdict.seconds.get("tuning")) else "",
        "isolation": isolation or "not needed, because nothing ran",
        "not isolated": ", ".join(verdict.not_isolated),
    }
    for name, text in parts.items():
        if text:
            lines += _wrapped(f"{name}: {text}", 1)
    if verdict.word in ("CRASHED", "DOES NOT BUILD") and verdict.log.strip():
        lines.append(f"{INDENT}the end of its output:")
        end = verdict.log.rstrip().splitlines()[-8:]
        lines += [f"{INDENT * 2}{text}"[:WIDTH] for text in end]
    if verdict.speed:
        headers, rows = _times(verdict, width)
        lines += ["", textwrap.indent(lay_out(headers, rows), INDENT), ""]
        dropped = [header for header in LEAST_IMPORTANT if header not in headers]
        below = [left_out(dropped, width - len(INDENT))] if dropped else []
        below.append(fill(_legend(rows), width - len(INDENT)))
        lines.append(textwrap.indent("\n".join(below), INDENT))
    return "\n".join(lines)


def conclusion(verdicts: Sequence[Verdict]) -> str:
    """Return a table for each kind of machine, and the line that counts the verdicts."""
    tables = []
    if len(verdicts) > 1:
        by_machine = grouped(verdicts, lambda verdict: verdict.kind_of_machine)
        several = sum(map(bool, by_machine)) > 1  # their times cannot be compared
        for machine, found in by_machine.items() if several else [("", verdicts)]:
            title = f"judged on {machine or 'no machine'}:\n\n" if several else ""
            tables.append(f"{title}{_table(found)}")
    return "\n\n".join([*tables, summary(verdicts)])


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return a line to quote."""
    counts: Counter[str] = Counter(verdict.word for verdict in verdicts)
    right = [verdict for verdict in verdicts if verdict.right]
    parts = [f"{len(right)} of {count(len(verdicts), 'file')} right"]
    summaries = {word: said.summary for word, said in WORDS.items() if said.summary}
    parts += [f"{counts[word]} {text}" for word, text in summaries.items() if counts[word]]
    if cached := sum(verdict.cached for verdict in verdicts):
        parts.append(f"{cached} from the cache")
    ratios = [(ratio, v) for v in right if (ratio := speedup(v)) is not None]
    by_machine = grouped(ratios, lambda pair: pair[1].kind_of_machine)
    for machine, found in by_machine.items() if len(verdicts) > 1 else ():
        best, verdict = max(found, key=lambda pair: pair[0])
        where = f" on {machine}" if len(by_machine) > 1 else ""
        parts.append(f"fastest {_short(verdict.file)} at {_ratio(best)} {REFERENCE}{where}")
    return f"judge: {', '.join(parts)}"


def line(verdict: Verdict) -> str:
    """Return a verdict in a line: the word, the file, its speed or first reason."""
    times = [f"{ratio} {REFERENCE} {name}" for name, ratio in _speedups(verdict).items() if ratio]
    why = ", ".join(times) if verdict.right else _why(verdict)
    cached = " (from the cache)" if verdict.cached else ""
    text = f"{verdict.word} {verdict.file or verdict.id}{cached}{f': {why}' if why else ''}"
    return textwrap.shorten(text, WIDTH, placeholder="…")


def _title(verdict: Verdict) -> str:
    where = f" on {verdict.device}" if verdict.device else ""
    cached = " (from the cache)" if verdict.cached else ""
    against = verdict.against or "an unknown loss"
    what = one_line(f"{verdict.file or verdict.id}, against {against}")
    return f"{verdict.word}  {what}{where}{cached}"


def _words(code: str) -> str:
    return code.replace("_", " ").replace("pytorch", "PyTorch")


def _reason(reason: JudgeReason) -> Iterator[str]:
    what = _words(reason.code)
    if reason.check:
        of_check = f"the check {reason.check}"
        what = f"it fails {of_check}" if reason.code == Code.WRONG else f"{what}, in {of_check}"
    text = reason.text.removeprefix(f"{_words(reason.code)}: ")
    told = text if text.startswith(what) else f"{what}: {text}"
    yield from _wrapped(f"why: {told}", 1)
    yield from _wrapped(f"what to do: {reason.advice}", 1)
    if reason.case:
        yield from _wrapped(f"smallest case: {reason.case}", 2)
    if reason.repeat:
        # A line that is to be pasted stays as it is.
        yield f"{INDENT * 2}repeat: {reason.repeat}"


def _accuracy(accuracy: Accuracy) -> str:
    pairs = {
        "value": (accuracy.value_ulp, accuracy.torch_value_ulp),
        "gradient": (accuracy.gradient_ulp, accuracy.torch_gradient_ulp),
    }
    if all(own is None for own, _ in pairs.values()):
        return "not tested"
    texts = []
    for name, (own, torch) in pairs.items():
        beside = "" if torch is None else f" (PyTorch {format_ulp(torch)})"
        told = "not tested" if own is None else f"within {format_ulp(own)} ulp{beside}"
        texts.append(f"{name} {told}")
    return ", ".join(texts)


def _times(verdict: Verdict, width: int) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows: two rows for each time, ratios above their intervals."""
    speed = verdict.speed
    impossible = [reason.case for reason in verdict.reasons if reason.code == Code.IMPOSSIBLE]
    others = list(dict.fromkeys(other for timed in speed for other in timed.ratios))
    others.sort(key=lambda other: other != REFERENCE)
    headers = ["pass", "median", *(f"vs\n{other}" for other in others), SHARE.header, MEMORY.header]
    rows = []
    for timed in speed:
        ratios = [timed.ratios.get(other) for other in others]
        share = "-" if timed.limit_share is None else f"{100 * timed.limit_share:.1f}"
        extra = timed.peak_extra_bytes
        first = [
            timed.case,
            SHORT_PASSES.get(timed.pass_, timed.pass_),
            format_seconds(timed.seconds),
            *(mark(*ratio[1:]) + _ratio(ratio[0]) if ratio else "-" for ratio in ratios),
            share if f"{timed.case}, {timed.pass_}" not in impossible else IMPOSSIBLE,
            "-" if extra is None else format_bytes(extra),
        ]
        second = [f"{_figure(r[1])}-{_figure(r[2])}" if r else "" for r in ratios]
        rows += [first, [timed.case, "", "", *second, "", ""]]
    least = LEAST_IMPORTANT if width < WIDTH else ()
    table = case_table(headers, rows)
    return fit_case(table.headers, table.rows, width - len(INDENT), least)


def _legend(rows: Sequence[Sequence[str]]) -> str:
    ratios = "vs: the speedup, the other's time divided by the file's, and its interval"
    signs = {cell[:1] for row in rows for cell in row}
    marks = (meaning for sign, meaning in MARKS.items() if sign in signs)
    return "; ".join([ratios, SHARE.told, MEMORY.told, *marks])


def _table(verdicts: Sequence[Verdict]) -> str:
    timed = {timed.pass_ for verdict in verdicts for timed in verdict.speed}
    passes = [name for pass_, name in SHORT_PASSES.items() if pass_ in timed]
    headers = ["file", "verdict", *(f"{name}\nvs ref" for name in passes)]
    rows = []
    for verdict in verdicts:
        ratios = _speedups(verdict)
        cells = [ratios[name] or "-" for name in passes]
        rows.append([_short(verdict.file or verdict.id), verdict.word, *cells])
    if any(verdict.reasons for verdict in verdicts):
        columns = zip(map(str.splitlines, headers), *rows, strict=True)
        taken = sum(GAP + max(map(len, (*title, *cells))) for title, *cells in columns)
        headers.append("why")
        for row, verdict in zip(rows, verdicts, strict=True):
            row.append(textwrap.shorten(_why(verdict), WIDTH - taken, placeholder="…"))
    return lay_out(headers, rows)


def _speedups(verdict: Verdict) -> dict[str, str]:
    found = {name: speedup(verdict, pass_) for pass_, name in SHORT_PASSES.items()}
    return {name: "" if ratio is None else _ratio(ratio) for name, ratio in found.items()}


def _why(verdict: Verdict) -> str:
    if not verdict.reasons:
        return ""
    first = verdict.reasons[0]
    return f"{first.check or first.code.replace('_', ' ')}: {first.text}"


def _short(file: str) -> str:
    return file if len(file) <= WIDEST_FILE else f"…{file[1 - WIDEST_FILE :]}"


def _ratio(value: float) -> str:
    return f"{_figure(value)}x"


def _figure(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _wrapped(text: str, depth: int) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=INDENT * depth,
        subsequent_indent=INDENT * (depth + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
