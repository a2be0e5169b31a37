"""The summaries that a page carries as JSON, with compressed rows and samples."""

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from losscli.cases.case import distinct_names
from losscli.runs.encoding import finite
from losscli.runs.records import PASS, BenchResult, Run, VerifyResult
from losscli.views.bench import case_names
from losscli.views.phrases import short_pass
from losscli.views.verify import VALUE, asked, by_case

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


def summary(run: Run) -> dict[str, Any]:
    """Return the summary of a bench or verify run; others have none."""
    known = {"bench": _of_bench, "verify": _of_checks}
    return known[run.kind](run) if run.kind in known else {}


def _of_bench(run: Run) -> dict[str, Any]:
    """Return the summary of a bench, with a list of numbers for each result."""
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


def _of_checks(run: Run) -> dict[str, Any]:
    """Return the summary of a verify run, with a letter for each check of a case."""
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
