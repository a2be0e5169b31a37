"""A bench run in the formats of other tools: Bencher, github-action-benchmark, OpenMetrics."""

import json
from collections.abc import Callable, Iterable, Mapping

from losscli.cases.case import distinct_names
from losscli.compare.metrics import METRICS
from losscli.compare.row_keys import label, timed
from losscli.errors import printable
from losscli.runs.measurements import Seconds
from losscli.runs.records import BenchResult, Run
from losscli.units import format_seconds

STATISTICS = ("median", "p20", "p80", "p95", "p99", "min", "max")
_FACTS = ("losscli", "commit", "file_commit", "device", "cpu", "gpu", "torch")


def _rows(run: Run) -> dict[str, tuple[BenchResult, Seconds]]:
    results = [(result, result.seconds) for result in timed(run).values() if result.seconds]
    names = distinct_names(result.case for result, _ in results)
    return {label(r).replace(r.case.name, names[r.case], 1): (r, times) for r, times in results}


def _metrics(result: BenchResult) -> Iterable[tuple[str, str, float]]:
    for name, metric in METRICS.items():
        if (value := metric.of(result)) is not None:
            yield name, metric.unit, value


def _bencher(run: Run) -> str:
    """Return Bencher Metric Format: latencies in nanoseconds, with the median's interval."""
    benchmarks = {}
    for name, (result, seconds) in _rows(run).items():
        latency = {"value": 1e9 * seconds.median}
        if seconds.interval:
            low, high = seconds.interval
            latency |= {"lower_value": 1e9 * low, "upper_value": 1e9 * high}
        others = {f"{metric}-{unit}": {"value": value} for metric, unit, value in _metrics(result)}
        benchmarks[name] = {"latency": latency, **others}
    return json.dumps(benchmarks, indent=2)


def _github_action_benchmark(run: Run) -> str:
    entries: list[dict[str, object]] = []
    for name, (result, seconds) in _rows(run).items():
        entry: dict[str, object] = {"name": name, "unit": "s", "value": seconds.median}
        if seconds.interval:
            low, high = seconds.interval
            entry["range"] = f"{format_seconds(low)} to {format_seconds(high)}"
        entries.append(entry | {"extra": result.reason})
        for metric, unit, value in _metrics(result):
            entries.append({"name": f"{name}: {metric}", "unit": unit, "value": value})
    return json.dumps(entries, indent=2)


def _openmetrics(run: Run) -> str:
    rows = [(_labels(name, each[0]), *each) for name, each in _rows(run).items()]
    facts = {fact: str(run.environment[fact]) for fact in _FACTS if run.environment.get(fact)}
    lines = ["# TYPE losscli_run info", "# HELP losscli_run The run that measured this."]
    lines.append(_sample("losscli_run_info", {"created": run.created, **facts}, 1))
    lines += _gauge("losscli_call_seconds", "seconds", "Time of a call.")
    lines += [
        _sample("losscli_call_seconds", labels | {"statistic": each}, getattr(seconds, each))
        for labels, _, seconds in rows
        for each in STATISTICS
    ]
    for metric, of in METRICS.items():
        name = f"losscli_{metric}_{of.unit}"
        values = ((labels, of.of(result)) for labels, result, _ in rows)
        if samples := [_sample(name, labels, v) for labels, v in values if v is not None]:
            lines += [*_gauge(name, of.unit, f"The {metric} of a call."), *samples]
    return "\n".join([*lines, "# EOF"])


def _gauge(name: str, unit: str, help: str) -> list[str]:
    return [f"# TYPE {name} gauge", f"# UNIT {name} {unit}", f"# HELP {name} {help}"]


def _labels(name: str, result: BenchResult) -> dict[str, str]:
    own = {"name": name, "loss": result.case.loss, "case": result.case.name, "pass": result.pass_}
    return own | {key: getattr(result, key) for key in ("implementation", "mode", "cache", "table")}


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
    shown = {key: printable(text).translate(escapes) for key, text in labels.items()}
    written = ",".join(f'{key}="{text}"' for key, text in shown.items())
    return f"{name}{{{written}}} {value!r}"


EXPORTS: Mapping[str, Callable[[Run], str]] = {
    "bencher": _bencher,
    "github": _github_action_benchmark,
    "openmetrics": _openmetrics,
}
