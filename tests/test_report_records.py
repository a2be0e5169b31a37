"""A bench run as scripts read it: JSON, JSONL and CSV."""

import csv
import io
import json
import math

import pytest
from msgspec.structs import replace

from losscli.report.render import render
from losscli.runs.records import (
    Error,
    Seconds,
    Speedup,
)
from tests.handmade import PAIR, failed, result, run, skipped


def test_json_has_impossible_as_a_field():
    beyond = run(result(limit_gbps=60.0), result(limit_gbps=70.0))
    assert [r["impossible"] for r in json.loads(render(beyond, "json"))["results"]] == [True, False]


def test_json_of_a_bench_run_is_stable():
    record = json.loads(render(run(*PAIR), "json"))
    assert list(record) == [
        "schema_version",
        "kind",
        "command",
        "created",
        "environment",
        "plan",
        "parts",
        "unfinished",
        "result_count",
        "excluded",
        "headline",
        "results",
    ]
    assert (record["schema_version"], record["kind"]) == (1, "bench")
    custom = record["results"][1]
    assert list(custom) == [
        "case",
        "implementation",
        "pass",
        "status",
        "reason",
        "code",
        "stop",
        "no_limit",
        "seconds",
        "host_seconds",
        "bytes",
        "gbps",
        "limit_gbps",
        "impossible",
        "default_allocator_seconds",
        "speedup",
        "ratios",
        "planned_extra_bytes",
        "peak_extra_bytes",
        "joules",
        "watts",
        "no_energy",
        "error",
        "table",
        "mode",
        "cache",
        "conditions",
    ]
    keys = ["median", "p20", "p80", "p95", "p99", "min", "max"]
    keys += ["samples", "interval", "processes"]
    assert list(custom["seconds"]) == keys
    assert custom["seconds"]["samples"] == [2e-3] * 3
    assert custom["case"]["shape"] == [4096, 4096]
    assert list(custom["error"]) == ["value_abs", "value_rel", "value_ulp", "grad_ulp", "grad_rel"]


def test_ratios_have_their_interval_and_verdict():
    faster = result(ratios={"reference": Speedup(4.0, 3.5, 4.5)})
    (custom,) = json.loads(render(run(faster), "json"))["results"]
    assert custom["ratios"] == {
        "reference": {
            "value": 4.0,
            "low": 3.5,
            "high": 4.5,
            "confident": True,
            "processes": [],
            "verdict": "faster",
        }
    }
    (row,) = csv.DictReader(io.StringIO(render(run(faster), "csv")))
    assert (row["ratios_reference_low"], row["ratios_reference_verdict"]) == ("3.5", "faster")


def test_the_interval_of_a_median_is_two_columns_of_csv():
    seconds = Seconds(2e-3, 2e-3, 2e-3, 1e-3, (2e-3,), (1.5e-3, 2.5e-3))
    (row,) = csv.DictReader(io.StringIO(render(run(result(seconds=seconds)), "csv")))
    assert (row["seconds_low"], row["seconds_high"]) == ("0.0015", "0.0025")


def test_the_samples_of_a_result_are_one_line_of_json():
    seconds = Seconds(1e-3, 1e-3, 1e-3, 1e-3, (1.23456789e-3, 2e-7, 10.0))
    text = render(run(result(seconds=seconds)), "json")
    assert '"samples": [0.00123457, 2e-07, 10.0]' in text
    assert '"shape": [4096, 4096]' in text


def test_nan_and_infinity_are_null_in_json():
    text = render(run(result(error=Error(value_ulp=math.inf, value_abs=math.nan))), "json")
    error = json.loads(text, parse_constant=pytest.fail)["results"][0]["error"]
    assert (error["value_ulp"], error["value_abs"]) == (None, None)


def test_jsonl_is_a_header_and_one_result_a_line():
    record = json.loads(render(run(*PAIR), "json"))
    header, *results = map(json.loads, render(run(*PAIR), "jsonl").splitlines())
    assert header | {"results": results} == record


def test_csv_is_flat_and_in_si_units():
    rows = list(csv.DictReader(io.StringIO(render(run(*PAIR, skipped()), "csv"))))
    custom = rows[1]
    assert float(custom["seconds_median"]) == 2e-3
    assert float(custom["speedup_reference"]) == 4.0
    assert float(custom["error_value_ulp"]) == 0.5
    assert (custom["shape"], custom["seconds_samples"]) == ("4096x4096", "3")
    assert (rows[2]["status"], rows[2]["seconds_median"]) == ("skipped", "")


def test_csv_has_the_same_columns_in_every_run():
    others = [run(), run(skipped()), run(failed()), run(result("reference")), run(*PAIR, skipped())]
    busy = replace(PAIR[1], conditions={"others": 0.5}, ratios={"compile": Speedup(2.0, 1.9, 2.1)})
    headers = {render(made, "csv").splitlines()[0] for made in [*others, run(busy)]}
    assert len(headers) == 1
    (row,) = csv.DictReader(io.StringIO(render(run(busy), "csv")))
    assert json.loads(row["ratios"])["compile"]["value"] == 2.0
    assert json.loads(row["conditions"]) == {"others": 0.5}
    assert row["ratios_reference_value"] == ""


def test_csv_quotes_a_reason_with_commas_and_quotes():
    reason = 'expected "a", got b'
    (row,) = csv.DictReader(io.StringIO(render(run(failed(reason=reason)), "csv")))
    assert row["reason"] == reason
