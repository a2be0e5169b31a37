import csv
import io
import json
import math

import pytest
from msgspec.structs import replace

from losscli.reasons import Code
from losscli.render.records import render
from losscli.render.text import MARKDOWN, lay_out
from losscli.runs.judgements import IMPOSSIBLE
from losscli.runs.measurements import Error, Seconds, Speedup
from tests.handmade import PAIR, case, failed, result, run, skipped
from tests.parameters import titled


def changed(**changes):
    return [replace(each, **changes) for each in PAIR]


def ratio(value, low, high):
    return result(ratio=value, ratios={"reference": Speedup(value, low, high)})


def on_gpu(size, seconds):
    where = case(shape=(size, size), target_shape=(size, size), device="cuda:0")
    return result(case=where, host_seconds=seconds)


LOSSY = (Error(value_ulp=0.5, grad_ulp=900.0), Error(value_ulp=7.0))
TITLED = [
    *changed(table="peers"),
    *(result(name, table="sums") for name in ("custom", "custom:tree")),
]
RUNS = {
    "two implementations": PAIR,
    "facts that rows do not share": [
        result(),
        result(case=case(dtype="bfloat16", distribution="normal")),
    ],
    "known limit": [PAIR[0], result(limit_gbps=70.0)],
    "faster than the memory": [
        result(limit_gbps=60.0, reason="IMPOSSIBLE: 112% of the measured limit"),
        result("compile"),
    ],
    "missing limits": [result(no_limit=why) for why in ("no nvcc", "no nvcc", "no room")],
    "host times of small cases on a GPU": [on_gpu(32, 12.34e-6), on_gpu(4096, 11e-6)],
    "no host times of large ones": [on_gpu(4096, 11e-6)],
    "titled tables": TITLED,
    "failed": [PAIR[0], failed()],
    "failed beside a time": [result(ratio=2.0), failed()],
    "digits lost by PyTorch's function": [
        result("functional"),
        *(
            result(
                "functional",
                case=case(loss="log_cosh"),
                code=Code.SAME_ERROR_AS_PYTORCH,
                error=error,
            )
            for error in LOSSY
        ),
    ],
    "skipped by one reason": [
        *PAIR,
        *(skipped(case=case(shape=(n,), target_shape=(n,))) for n in range(1, 6)),
    ],
    "no time at all": [skipped()],
    "mean of ratios": [
        result(ratio=2.0),
        result(ratio=8.0, error=Error(value_ulp=0.1, grad_ulp=0.7)),
    ],
    "both passes": [result(ratio=2.0), result(pass_="forward_backward", ratio=3.0)],
    "summary of the first but the reference": [
        result("reference"),
        result("compile", ratio=3.0),
        result("custom", ratio=9.0),
    ],
    "no reference": [result(speedup={})],
    "faster, slower, same and unclear": [
        ratio(4.0, 3.9, 4.1),
        ratio(0.5, 0.4, 0.6),
        ratio(1.0, 0.99, 1.01),
        ratio(1.02, 0.9, 1.2),
        ratio(10.0, 9.9, 10.1),
    ],
    "two modes": [*changed(mode="graph"), *PAIR],
    "warm cache": changed(cache="warm"),
    "two caches": [*PAIR, *changed(cache="warm", mode="host")],
    "idle machine": [result(conditions={"others": 0.09})] * 2,
    "busy machine": [result(conditions={"others": part}) for part in (0.09, 0.11, 0.45)],
    "throttled GPU": [
        result(conditions={"celsius": [40, 90], "throttle_reasons": ["power limit"]}),
        result(conditions={"celsius": [40, 41]}),
    ],
    "GPU that waited": [result(conditions={"host_gaps": 3}), result()],
}


def test_tables_are_as_in_the_golden_file(golden):
    tables = {name: render(run(*results), "table") for name, results in RUNS.items()}
    golden("report_bench.txt", titled(tables))


def test_chosen_columns_are_in_their_order_and_no_others():
    text = render(run(*PAIR), "table", columns=["max", "p99", "median"], verbose=True)
    assert columns_of(text) == ["case", "pass", "impl", "max", "p99", "median"]
    assert "p99: 1 of 100 samples takes longer" in text
    assert "GB/s" not in text
    narrow = render(run(*PAIR), "table", 60, columns=["memory", "p20-p80"])
    assert columns_of(narrow)[-2:] == ["temp mem", "p20-p80"]


def columns_of(text):
    """Return the headers of a table, each with its lines joined."""
    lines = text.splitlines()
    rule = next(n for n, line in enumerate(lines) if line.startswith("---"))
    heads, start = [], 0
    for dashes in lines[rule].split():
        start = lines[rule].index(dashes, start)
        words = [line[start : start + len(dashes)].strip() for line in lines[rule - 2 : rule]]
        heads.append(" ".join(filter(None, words)))
        start += len(dashes)
    return heads


def test_a_table_of_wide_values_fits_100_columns():
    huge = case(
        loss="smooth_l1",
        shape=(1048576, 32768, 32768),
        dtype="bfloat16",
        reduction="none",
        distribution="heavy_tailed",
        params={"beta": 0.0123456789},
    )
    wide = result(
        "custom:a_strategy_with_a_long_name",
        "forward_backward",
        case=huge,
        seconds=Seconds(0.99999, 1e-9, 1e7, 1e-9, (1.0,)),
        gbps=123456.789,
        limit_gbps=123456.789,
        speedup={"reference": 99999.9},
        peak_extra_bytes=1023 * 2**30 + 2**29,
        error=Error(value_ulp=8388607.0),
    )
    failure = failed(case=huge, reason="word " * 60)
    text = render(run(*PAIR, wide, failure, skipped(reason="word " * 60)), "table")
    table = text.rpartition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 100
    joined = "".join(line.split("  ")[0] for line in table.splitlines())
    assert "1048576x32768x32768" in joined  # broken, not lost


def test_time_is_impossible_beyond_the_limit_by_a_twentieth_and_by_microseconds():
    for limit, impossible in ((67.1 / 1.06, True), (67.1 / 1.04, False), (None, False)):
        assert result(limit_gbps=limit).impossible is impossible
    for others, impossible in ((0.05, True), (0.5, False)):
        assert result(limit_gbps=40.0, conditions={"others": others}).impossible is impossible
    small = case(shape=(32, 32), target_shape=(32, 32))
    probe = small.floor_bytes("forward") / 6e-6 / 1e9
    assert not result(case=small, median=2e-6, gbps=3 * probe, limit_gbps=probe).impossible


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


def test_json_has_null_for_nan_and_jsonl_is_a_header_and_one_result_a_line():
    text = render(run(result(error=Error(value_ulp=math.inf, value_abs=math.nan))), "json")
    error = json.loads(text, parse_constant=pytest.fail)["results"][0]["error"]
    assert (error["value_ulp"], error["value_abs"]) == (None, None)
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


ROWS = [["mse", "1.5 ms"], ["hinge", "=12 us"]]


def test_columns_of_figures_are_aligned_to_the_right():
    assert lay_out(["loss", "median\ntime"], ROWS).splitlines() == [
        "loss   median",
        "         time",
        "-----  ------",
        "mse    1.5 ms",
        "hinge  =12 us",
    ]
    for gap in ("", "-", IMPOSSIBLE):
        assert lay_out(["share"], [["7.5"], [gap]]).splitlines()[2].endswith(" 7.5")


def test_markdown_has_one_line_of_headers_and_tables_may_lack_headers_or_rows():
    assert lay_out(["loss", "median\ntime"], ROWS, MARKDOWN).splitlines() == [
        "| loss  | median time |",
        "|-------|-------------|",
        "| mse   |      1.5 ms |",
        "| hinge |      =12 us |",
    ]
    assert lay_out((), [["a", "1"], ["bb", "22"]], align=("left", "left")) == "a   1\nbb  22"
    assert lay_out(["loss"], []) == ""
