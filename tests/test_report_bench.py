"""A bench run in every format."""

import pytest
from msgspec.structs import replace

from losscli.reasons import Code
from losscli.report.render import render
from losscli.runs.columns import COLUMNS
from losscli.runs.records import (
    Error,
    Seconds,
    Speedup,
)
from tests.handmade import PAIR, case, failed, result, run, skipped

LEGEND = """\
median: time of a call; p20-p80: 3 of 5 samples lie within; GB/s: the fewest bytes of the pass over
    the median; vs ref: the time of the reference over this one; ulp: the largest error in units in
    the last place; 2 of a mean or sum and 4 of an element always pass; extra: memory beyond inputs,
    loss and gradient; custom: losscli's own kernel""".splitlines()


def test_table_of_a_bench_run_as_a_whole():
    assert render(run(*PAIR), "table").splitlines() == [
        "A CPU, 2 threads, torch 2.13.0, float32, mean",
        "",
        "case           pass  impl         median    p20-p80  GB/s  vs ref   ulp    extra",
        "-------------  ----  ---------  --------  ---------  ----  ------  ----  -------",
        "mse 4096x4096  fwd   reference  8.000 ms  7.60-8.80  67.1       -  0.50  2.0 MiB",
        "               fwd   custom     2.000 ms  1.90-2.20  67.1   4.00x  0.50  2.0 MiB",
        "",
        *LEGEND,
        "",
        "custom is slower than the best peer in 0 of 1 cell",
        "",
        "custom: 4.00x reference forward (1 case), largest error 0.50 ulp",
    ]


def test_chosen_columns_stand_in_their_order_and_no_others():
    text = render(run(*PAIR), "table", columns=["max", "p99", "median"])
    assert columns_of(text) == ["case", "pass", "impl", "max", "p99", "median"]
    assert "p99: 1 of 100 samples takes longer" in text
    assert "GB/s" not in text
    narrow = render(run(*PAIR), "table", 60, columns=["extra", "p20-p80"])
    assert columns_of(narrow)[-2:] == ["extra", "p20-p80"]


def test_every_column_can_be_chosen_of_any_result():
    text = render(run(*PAIR, failed()), "md", columns=list(COLUMNS))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {len(COLUMNS) + 4}


def test_shared_facts_stand_above_the_table_and_others_in_each_row():
    other = case(dtype="bfloat16", distribution="normal")
    text = render(run(result(), result(case=other)), "table")
    assert text.startswith("A CPU, 2 threads, torch 2.13.0, mean\n")
    names = [line[:40] for line in text.splitlines() if line.startswith("mse")]
    assert "mse 4096x4096 float32 " in names[0]
    assert "mse 4096x4096 bfloat16 normal" in names[1]


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


def test_limit_column_exists_where_the_limit_is_known():
    assert "% of limit" not in columns_of(render(run(*PAIR), "table"))
    text = render(run(PAIR[0], result(limit_gbps=70.0)), "table")
    assert "% of limit" in columns_of(text)
    rows = [line.split() for line in text.splitlines() if " fwd " in line]
    assert [row[row.index("67.1") + 1] for row in rows] == ["-", "95.9"]
    assert "| % of limit |" in " ".join(render(run(result(limit_gbps=70.0)), "md").split())


def test_time_faster_than_the_memory_is_marked_and_counted():
    text = render(
        run(result(limit_gbps=60.0, reason="IMPOSSIBLE, 112%"), result("compile")), "table"
    )
    assert text.count("IMPOSSIBLE") == 3  # its cell, a note, the line to quote
    assert "mse 4096x4096 float32 mean, custom, forward: IMPOSSIBLE, 112%" in text
    assert text.splitlines()[-1].endswith(", 1 IMPOSSIBLE")


def test_each_reason_for_a_missing_limit_is_printed_once():
    reasons = ("no nvcc", "no nvcc", "no room")
    text = render(run(*(result(no_limit=reason) for reason in reasons)), "table")
    assert text.split("\n\n")[3] == "limit not measured: no nvcc\nlimit not measured: no room"


@pytest.mark.parametrize(
    ("limit", "impossible"), [(67.1 / 1.06, True), (67.1 / 1.04, False), (None, False)]
)
def test_five_percent_beyond_the_limit_is_not_impossible(limit, impossible):
    assert result(limit_gbps=limit).impossible is impossible


def test_no_time_is_impossible_on_a_busy_machine():
    fast = {"limit_gbps": 40.0}
    assert result(**fast, conditions={"others": 0.05}).impossible
    assert not result(**fast, conditions={"others": 0.5}).impossible


def test_few_microseconds_beyond_the_limit_are_not_impossible():
    small = case(shape=(32, 32), target_shape=(32, 32))
    slow_probe = small.floor_bytes("forward") / 6e-6 / 1e9
    quick = {"case": small, "median": 2e-6, "gbps": 3 * slow_probe, "limit_gbps": slow_probe}
    assert not result(**quick).impossible


def test_host_column_exists_where_small_cases_ran_on_a_gpu():
    small = case(shape=(32, 32), target_shape=(32, 32), device="cuda:0")
    large = case(device="cuda:0")
    timed = [result(case=small, host_seconds=12.34e-6), result(case=large, host_seconds=11e-6)]
    assert "12.3 us" in render(run(*timed), "table")
    assert "host" not in columns_of(render(run(timed[1]), "table"))


def test_each_table_of_a_config_is_one_below_its_title():
    strategies = [result(name, table="sums") for name in ("custom", "custom:tree")]
    text = render(run(*(replace(r, table="peers") for r in PAIR), *strategies), "table")
    _, first, peers, second, sums, *_ = text.split("\n\n")
    assert (first, second) == ("peers", "sums")
    assert [line.split()[-9] for line in peers.splitlines()[2:]] == ["reference", "custom"]
    assert "custom:tree" in sums
    assert "### sums\n\n| case" in render(run(*strategies), "md")


def test_rows_of_a_case_stand_together_in_markdown_too():
    text = render(run(*PAIR), "md")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    columns = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert columns[:4] == ["case", "pass", "impl", "median"]
    assert rows[2].startswith("| mse 4096x4096 | fwd ")
    assert rows[3].startswith("|               | fwd ")


def test_a_failed_implementation_shows_no_figures_and_its_reason_in_full():
    text = render(run(PAIR[0], failed()), "table")
    (row,) = (line for line in text.splitlines() if " custom " in line)
    assert row.split() == ["fwd", "custom", "failed"]
    assert "FAILED mse 4096x4096 float32 mean, custom, forward: loss: 9 ulp" in text
    assert text.splitlines()[-1] == "custom: 1 FAILED"


def test_functions_of_pytorch_that_lose_digits_are_named_with_their_largest_error():
    lossy = [
        result("functional", case=case(loss="log_cosh"), code=Code.NO_WORSE_THAN_TORCH, error=error)
        for error in (Error(value_ulp=0.5, grad_ulp=900.0), Error(value_ulp=7.0))
    ]
    text = " ".join(render(run(result("functional"), *lossy), "table").split())
    assert (
        "functional of log_cosh loses digits of single elements, up to 900 ulp in 2 results: it is "
        "PyTorch's own, right as a whole, and has a time"
    ) in text
    assert "functional of mse" not in text


def test_skipped_implementations_are_grouped_by_reason():
    cases = [case(shape=(n,), target_shape=(n,)) for n in range(1, 6)]
    text = render(run(*PAIR, *(skipped(case=case) for case in cases)), "table")
    assert text.split("\n\n")[3] == (
        "skipped custom (mse 1 float32 mean, mse 2 float32 mean, mse 3 float32 mean and 2 more): "
        "needs 2 GiB"
    )


def test_run_without_a_time_still_has_its_reasons():
    assert render(run(skipped()), "table").splitlines()[-1] == (
        "skipped custom (mse 4096x4096 float32 mean): needs 2 GiB"
    )


@pytest.mark.parametrize(
    ("results", "lines"),
    [
        (
            [result(ratio=2.0), result(ratio=8.0, error=Error(value_ulp=0.1, grad_ulp=0.7))],
            ["custom: 4.00x reference forward (geometric mean of 2 cases), largest error 0.70 ulp"],
        ),
        (
            [result(ratio=2.0), result(pass_="forward_backward", ratio=3.0)],
            [
                "custom: 2.00x reference forward (1 case), largest error 0.50 ulp",
                "custom: 3.00x reference forward+backward (1 case), largest error 0.50 ulp",
            ],
        ),
        (
            [result("reference"), result("compile", ratio=3.0), result("custom", ratio=9.0)],
            ["compile: 3.00x reference forward (1 case), largest error 0.50 ulp"],
        ),
        (
            [result(speedup={})],
            ["custom: forward at up to 67.1 GB/s (1 case), largest error 0.50 ulp"],
        ),
        (
            [result(ratio=2.0), failed()],
            ["custom: 2.00x reference forward (1 case), largest error 0.50 ulp, 1 FAILED"],
        ),
    ],
    ids=["mean", "both passes", "the first but the reference", "no reference", "a failure"],
)
def test_summary_line_of_a_bench_run(results, lines):
    assert render(run(*results), "table").split("\n\n")[-1].splitlines() == lines


@pytest.mark.parametrize(
    ("ratio", "cell"),
    [
        (Speedup(4.0, 3.9, 4.1), "4.00x"),
        (Speedup(0.5, 0.4, 0.6), "0.50x"),
        (Speedup(1.0, 0.99, 1.01), "=1.00x"),
        (Speedup(1.02, 0.9, 1.2), "?1.02x"),
    ],
    ids=["faster", "slower", "same", "unclear"],
)
def test_ratio_that_is_same_or_unclear_is_marked(ratio, cell):
    text = render(run(result(ratio=ratio.value, ratios={"reference": ratio})), "table")
    assert cell in text.split()


def test_marked_ratio_is_aligned_as_a_figure():
    same = result(ratio=1.0, ratios={"reference": Speedup(1.0, 0.99, 1.01)})
    lines = render(run(result(ratio=10.0), same), "table").splitlines()
    ends = {line.index("x", line.index(" ms")) for line in lines if " ms " in line}
    assert len(ends) == 1


def test_mode_other_than_device_stands_beside_the_pass():
    graph = [replace(r, mode="graph") for r in PAIR]
    lines = render(run(*graph, *PAIR), "table").splitlines()
    assert sum(" fwd graph  " in line for line in lines) == 2
    assert lines[-2:] == [
        "custom: 4.00x reference forward (1 case), largest error 0.50 ulp",
        "custom: 4.00x reference forward graph (1 case), largest error 0.50 ulp",
    ]


def test_warm_cache_stands_above_the_table_and_in_the_summary():
    lines = render(run(*(replace(r, cache="warm") for r in PAIR)), "table").splitlines()
    assert lines[0] == "A CPU, 2 threads, torch 2.13.0, float32, mean, warm cache"
    assert lines[4].split()[2:4] == ["fwd", "reference"]
    assert lines[-1] == (
        "custom: 4.00x reference forward with a warm cache (1 case), largest error 0.50 ulp"
    )


def test_warm_cache_stands_beside_the_pass_in_a_mixed_run():
    host = [replace(r, cache="warm", mode="host") for r in PAIR]
    text = render(run(*PAIR, *host), "table")
    lines = text.splitlines()
    assert lines[0] == "A CPU, 2 threads, torch 2.13.0, float32, mean"
    assert text.count(" fwd host warm ") == 2
    assert lines[-2:] == [
        "custom: 4.00x reference forward (1 case), largest error 0.50 ulp",
        "custom: 4.00x reference forward host with a warm cache (1 case), largest error 0.50 ulp",
    ]


def test_busy_machine_is_reported_once():
    quiet, busy, busier = (result(conditions={"others": part}) for part in (0.09, 0.11, 0.45))
    assert "busy" not in render(run(quiet, quiet), "table")
    text = render(run(quiet, busy, busier), "table")
    assert (
        "the machine was busy: other programs took up to 45% of its cores during 2 of 3 results"
        in text
    )


def test_throttle_reasons_of_a_gpu_are_reported():
    slowed = result(conditions={"celsius": [40, 90], "throttle_reasons": ["power limit"]})
    text = render(run(slowed, result(conditions={"celsius": [40, 41]})), "table")
    assert "the GPU was throttled during 1 of 2 results: power limit" in text


def test_gpu_that_waited_for_the_host_is_reported():
    waited = result(conditions={"host_gaps": 3})
    text = render(run(waited, result(conditions={"celsius": [40, 41]})), "table")
    assert "the GPU waited for the host within samples of 1 of 2 results" in text
