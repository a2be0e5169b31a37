"""The parts of a page for each record: its document, and a run's summary as JSON."""

import base64
import json
import math
import shlex
import struct
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeGuard

from losscli.cases.case import distinct_names
from losscli.compare.gate import ComparisonRecord, Comparisons, record_of
from losscli.compare.row_keys import long_name
from losscli.judge.verdict import Verdict
from losscli.machine.differences import LABELS
from losscli.render.html.any_record import Reported
from losscli.render.output import state_of
from losscli.render.records import view
from losscli.report.verdict_block import block, line, summary
from losscli.report.verdict_writer import Verdicts
from losscli.runs.encoding import finite
from losscli.runs.grouping import grouped
from losscli.runs.records import PASS, BenchResult, Run, VerifyResult
from losscli.units import format_bytes
from losscli.views import compare, plots
from losscli.views.bench import case_names
from losscli.views.document import Document, Notes, Part, Plot, Point, Sentence, Table, Verbatim
from losscli.views.phrases import short_pass, slug
from losscli.views.verify import VALUE, asked, by_case

_RANGES = (
    ("sm_clock_hz", "clock while timed", 1e-6, "MHz"),
    ("memory_clock_hz", "memory clock while timed", 1e-6, "MHz"),
    ("celsius", "temperature while timed", 1.0, "°C"),
    ("watts", "power while timed", 1.0, "W"),
)
"""Conditions of a GPU: their key, label, scale and unit."""
_STEPS = 2048
"""Steps of a sample's logarithm in a factor of e: each sample is kept to 0.025 %."""
ENCODING = (
    f"base64 of zlib of int16, the low bytes of all before the high bytes, {_STEPS} * ln(sample / "
    "median), the results in the order of the rows, 'counts' of each"
)
ROWS_ENCODING = "base64 of zlib of JSON, a list of the columns for each result"
_COLUMNS = (
    *("case", "pass", "implementation", "status", "median", "p20", "p80", "gbps", "limit_gbps"),
    *("vs_reference", "ulp", "extra_bytes"),
)


def document_of(record: Reported | Comparisons) -> tuple[Part, ...]:
    """Return the document of a record; its first part is the answer."""
    if isinstance(record, Verdicts):
        return tuple(_of_verdicts(record))
    if isinstance(record, Comparisons):  # bench runs compared with the first
        return _arranged(compare.view(record), _changes(record_of(record)))
    if isinstance(record, ComparisonRecord):
        return _arranged(compare.of_record(record), _changes(record))
    known = {"bench": plots.of_bench, "verify": plots.of_verify}
    drawn = known[record.kind](record) if record.kind in known else ()
    cut = "The last line of the file is cut off; results may be missing."
    notes = (Notes([cut] * record.cut_off, "warn"),)
    return (*_arranged((*view(record, verbose=True), *notes), drawn), _environment(record))


def _changes(record: ComparisonRecord) -> Iterator[Part]:
    for index, one in enumerate(record.comparisons, 1):
        name = f"changes-{index}" if len(record.comparisons) > 1 else "changes"
        if drawn := compare.plots_of(one, name):
            yield Part(f"Changes of {short(one.run)}", drawn)


def _arranged(document: Document, drawn: Iterable[Part]) -> tuple[Part, ...]:
    first = tuple(each for each in document if isinstance(each, Sentence | Notes))
    rest = tuple(each for each in document if not isinstance(each, Sentence | Notes))
    return Part("Result", first), *drawn, Part("All results", rest)


def _environment(run: Run) -> Part:
    facts = {"command": shlex.join(run.command), "created": run.created}
    for key, value in run.environment.items():
        in_bytes = key.endswith("_bytes") and isinstance(value, int | float)
        if value is not None:
            facts[LABELS.get(key, key)] = format_bytes(value) if in_bytes else str(value)
    for key, label, scale, unit in _RANGES:
        known = (result.conditions.get(key) for result in run.of(BenchResult))
        if ranges := [each for each in known if _is_range(each)]:
            low, high = min(r[0] for r in ranges) * scale, max(r[1] for r in ranges) * scale
            facts[label] = f"{low:.0f} to {high:.0f} {unit}"
    return Part("Environment", (_facts(facts),))


def _is_range(value: object) -> TypeGuard[Sequence[float]]:
    """Tell whether a condition is two numbers; another version's record may differ."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return all(isinstance(each, int | float) for each in value)


def _facts(facts: Mapping[str, str]) -> Table:
    return Table(("fact", "value"), [(name, text) for name, text in facts.items() if text])


def _of_verdicts(record: Verdicts) -> Iterator[Part]:
    verdicts = record.verdicts
    said = line(verdicts[0]) if len(verdicts) == 1 else summary(verdicts).removeprefix("judge: ")
    states = [state_of(verdict.word) for verdict in verdicts]
    worst = min(states, key=("bad", "warn", "good", "").index, default=state_of(""))
    yield Part("Result", (Sentence(said, worst),))
    if len(verdicts) > 1:
        rows = []
        for v in verdicts:
            why = textwrap.shorten(v.reasons[0].text, 160, placeholder="…") if v.reasons else ""
            rows.append((v.file or v.id, v.word, v.against, why))
        yield Part("All results", (Table(("file", "verdict", "against", "first reason"), rows),))
    for index, verdict in enumerate(verdicts, 1):
        said, _, times = block(verdict).partition("\n\n")
        found = (Verbatim(said, wraps=True), *[Verbatim(times)] * bool(times))
        word = Sentence(verdict.word, state_of(verdict.word))
        yield Part(verdict.file or verdict.id, (word, *_speedups(verdict, index), *found))
    facts = {"command": " ".join(record.command), "created": record.created}
    for name in ("losscli", "torch", "kind_of_machine"):
        values = dict.fromkeys(getattr(verdict, name) for verdict in verdicts)
        facts[name.removeprefix("kind_of_")] = ", ".join(value for value in values if value)
    yield Part("Environment", (_facts(facts),))


def _speedups(verdict: Verdict, index: int) -> Iterator[Plot]:
    for pass_, times in grouped(verdict.speed, lambda speed: speed.pass_).items():
        points: dict[str, list[Point]] = {}
        for speed in times:
            for other, (value, low, high) in speed.ratios.items():
                points.setdefault(other, []).append(Point(speed.case, value, 0.0, low, high))
        if points:
            key = f"speedup-file{index}-{slug(pass_)}"
            title = f"Speedup of the file, {long_name(pass_)}"
            yield Plot.forest(key, title, points, sides=("slower", "faster than the others"))


def short(name: str) -> str:
    """Return a file's name without its folders."""
    return PurePath(name).name or name


def about(record: Reported) -> str:
    """Return a record's kind, machine and time."""
    if isinstance(record, ComparisonRecord):
        return f"compare, baseline {short(record.baseline)}"
    machine = ""
    if isinstance(record, Run):
        machine = record.environment.get("gpu") or record.environment.get("cpu") or ""
    created = record.created[:16].replace("T", " ")
    return ", ".join(str(word) for word in (record.kind, machine, created) if word)


def summary_of(run: Run) -> dict[str, Any]:
    """Return the summary of a bench or verify run; others have none."""
    known = {"bench": _bench_summary, "verify": _verify_summary}
    return known[run.kind](run) if run.kind in known else {}


def _bench_summary(run: Run) -> dict[str, Any]:
    results = run.of(BenchResult)
    names = case_names(results)
    index = {case: number for number, case in enumerate(names)}
    implementations = list(dict.fromkeys(r.implementation for r in results))
    rows = [_row(r, index[r.case], implementations.index(r.implementation)) for r in results]
    return {
        "kind": "bench",
        "created": run.created,
        "cases": list(names.values()),
        "implementations": implementations,
        "columns": _COLUMNS,
        "rows": _packed(rows),
        "samples": {
            "encoding": ENCODING,
            "counts": [len(r.seconds.samples) if r.seconds else 0 for r in results],
            "data": _samples(results),
        },
    }


def _verify_summary(run: Run) -> dict[str, Any]:
    checks = list(dict.fromkeys(r.check for r in run.of(VerifyResult)))
    groups = by_case(asked(run))
    names = distinct_names(case for case, _ in groups)
    rows = []
    for (case, implementation), results in groups.items():
        found = {r.check: r for r in results}
        letters = "".join(found[c].status[0] if c in found else "-" for c in checks)
        value = found.get(VALUE)
        errors = [value.error.value_ulp, value.reference_error.value_ulp] if value else []
        rows.append([names[case], implementation, letters, *map(_rounded, errors)])
    return {
        "kind": "verify",
        "created": run.created,
        "checks": checks,
        "letters": {PASS[0]: PASS, "w": "warn", "f": "fail", "s": "skipped", "-": "not applicable"},
        "columns": ("case", "implementation", "checks", "ulp", "torch_ulp"),
        "rows": _packed(rows),
    }


def _row(result: BenchResult, case: int, implementation: int) -> list[Any]:
    figures = [getattr(result.seconds, name, None) for name in ("median", "p20", "p80")]
    figures += [result.gbps, result.limit_gbps, result.speedup.get("reference")]
    figures += [result.error.ulp, result.peak_extra_bytes]
    pass_ = short_pass(result.pass_, result.mode, result.cache)
    return [case, pass_, implementation, result.status, *map(_rounded, figures)]


def _rounded(value: float | None) -> float | int | None:
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _packed(rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    text = json.dumps(finite(rows), separators=(",", ":"), allow_nan=False)
    return {"encoding": ROWS_ENCODING, "data": _compressed(text.encode())}


def _compressed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _samples(results: Sequence[BenchResult]) -> str:
    logs = [math.log(x / r.seconds.median) for r in results if r.seconds for x in r.seconds.samples]
    steps = [min(max(round(_STEPS * log), -(2**15)), 2**15 - 1) for log in logs]
    data = struct.pack(f"<{len(steps)}h", *steps)
    return _compressed(data[::2] + data[1::2])  # smaller than interleaved
