"""A bench run as scripts read it: JSON, JSONL and CSV."""

import csv
import io
import json
import math

import pytest
from msgspec.structs import replace

from losscli.render.records import render
from losscli.runs.records import Error, Seconds, Speedup
from tests.handmade import PAIR, failed, result, run, skipped


def rows(*results):
    return list(csv.DictReader(io.StringIO(render(run(*results), "csv"))))


def test_json_and_csv_are_as_in_the_golden_files(golden):
    """Scripts read them: a key that is gone or renamed needs another schema version."""
    seconds = Seconds(1e-3, 1e-3, 1e-3, 1e-3, (1.23456789e-3, 2e-7, 10.0), (0.5e-3, 1.5e-3))
    ratios = {"reference": Speedup(4.0, 3.5, 4.5), "compile": Speedup(2.0, 1.9, 2.1)}
    timed = result(seconds=seconds, ratios=ratios, conditions={"others": 0.5}, limit_gbps=60.0)
    quoted = failed(reason='expected "a", got b')
    for format in ("json", "csv"):
        text = render(run(*PAIR, timed, quoted, skipped()), format)
        golden(f"bench.{format}", f"{text}\n")


def test_nan_and_infinity_are_null_in_json():
    text = render(run(result(error=Error(value_ulp=math.inf, value_abs=math.nan))), "json")
    error = json.loads(text, parse_constant=pytest.fail)["results"][0]["error"]
    assert (error["value_ulp"], error["value_abs"]) == (None, None)


def test_jsonl_is_a_header_and_one_result_a_line():
    record = json.loads(render(run(*PAIR), "json"))
    header, *results = map(json.loads, render(run(*PAIR), "jsonl").splitlines())
    assert header | {"results": results} == record


def test_csv_has_the_same_columns_in_every_run_and_the_rest_as_json():
    others = [run(), run(skipped()), run(failed()), run(result("reference")), run(*PAIR, skipped())]
    busy = replace(PAIR[1], conditions={"others": 0.5}, ratios={"compile": Speedup(2.0, 1.9, 2.1)})
    headers = {render(made, "csv").splitlines()[0] for made in [*others, run(busy)]}
    assert len(headers) == 1
    (row,) = rows(busy)
    assert json.loads(row["ratios"])["compile"]["value"] == 2.0
    assert json.loads(row["conditions"]) == {"others": 0.5}
    assert row["ratios_reference_value"] == ""
