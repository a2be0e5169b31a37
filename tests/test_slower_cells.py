"""Cells in which custom is slower are counted and named, and noise is not."""

import json
import math
import random
from typing import Any

import pytest

from losscli.compare.cells import cells
from losscli.report import bench_notes
from losscli.report.render import conclusion, render
from losscli.report.writer import Writer
from losscli.runs.reading import read_run
from tests.handmade import around, case, failed, run, timed

ONE_LOSS = (
    timed("custom", around(1.0e-3)),
    timed("reference", around(0.99e-3)),
    timed("compile", around(0.95e-3)),
    timed("custom", around(1.0e-3), pass_="forward_backward"),
    timed("compile", around(2.0e-3), pass_="forward_backward"),
)
"""Slower than one peer in one of two cells."""


def slower_cells(*results):
    return bench_notes.slower_cells(run(*results))


def test_headline_is_in_the_record_and_read_back(tmp_path):
    path = tmp_path / "run.json"
    with Writer(run(), "json", path) as writer:
        for each in ONE_LOSS:
            writer.add(each)
    loss: dict[str, Any] = {
        "case": "mse 4096x4096 float32 mean",
        "pass": "forward",
        "mode": "device",
        "table": "",
    }
    loss |= {"peer": "compile", "ratio": pytest.approx(0.95)}
    expected = {"cells": 2, "slower": [loss], "too_short": 0, "untimed": 0}
    assert json.loads(path.read_text())["headline"] == expected
    assert read_run(path, "bench").headline == writer.run.headline


def test_report_is_one_line_where_custom_is_never_slower():
    results = [timed("custom", around(1.0)), timed("compile", around(1.1))]
    assert slower_cells(*results) == ["custom is slower than the best peer in 0 of 1 cell"]


def test_slower_cell_is_named_with_the_best_peer_and_the_ratio():
    assert slower_cells(*ONE_LOSS) == [
        "custom is slower than the best peer in 1 of 2 cells",
        "    mse 4096x4096 float32 mean, forward: 0.950x compile (1.000 ms against 950.0 us)",
    ]


@pytest.mark.parametrize(
    ("peer", "losses"),
    [
        (around(0.95, width=0.10), 0),  # behind in 8 rounds of 11
        (around(0.95, width=0.01), 1),
        (around(0.995), 0),  # by less than a hundredth, in each of them
    ],
)
def test_noise_is_not_reported_as_slower(peer, losses):
    results = [timed("custom", around(1.0)), timed("compile", peer)]
    assert slower_cells(*results)[0] == f"custom is slower than the best peer in {losses} of 1 cell"


def test_disturbance_of_a_whole_round_makes_no_cell_slower():
    slowed = [1.0, 1.0, 1.5, 1.5, 1.5, 1.0, 1.0, 1.0, 1.5, 1.0, 1.5]
    peer = [0.95 * sample for sample in slowed]
    (cell,) = cells(run(timed("custom", slowed), timed("compile", peer)))
    assert cell.slower_than == {"compile"}


def test_cell_with_too_few_rounds_is_named():
    results = [timed("custom", around(1.0, count=3)), timed("compile", around(0.9, count=3))]
    assert slower_cells(*results) == [
        "custom is slower than the best peer in 0 of 1 cell",
        "custom is behind in 1 cell with too few samples to decide",
        "    mse 4096x4096 float32 mean, forward: 0.900x compile (1.000 s against 900.0 ms)",
    ]


def shaped(rows, ours, theirs):
    shape = case(shape=(rows, 8), target_shape=(rows, 8))
    return [timed("custom", ours, case=shape), timed("compile", theirs, case=shape)]


def test_with_many_cells_slower_needs_stronger_evidence():
    behind = shaped(1, around(1.0), [*around(0.95)[:-1], 1.1])  # in 10 rounds of 11
    ties = [result for n in range(2, 102) for result in shaped(n, around(1.0), around(1.0))]
    assert slower_cells(*behind)[0] == "custom is slower than the best peer in 1 of 1 cell"
    assert (
        slower_cells(*behind, *ties)[0] == "custom is slower than the best peer in 0 of 101 cells"
    )


def test_many_slower_cells_are_all_reported():
    behind = [
        result
        for n in range(1, 31)
        for result in shaped(n, around(1.0, count=12), around(0.9, count=12))
    ]
    assert slower_cells(*behind)[0] == "custom is slower than the best peer in 30 of 30 cells"


def test_slower_than_any_peer_counts_whatever_its_median():
    scattered = [0.7, 1.3] * 5 + [0.7]
    results = [
        timed("custom", around(1.0)),
        timed("compile", scattered),
        timed("reference", around(0.9)),
    ]
    assert slower_cells(*results)[1].endswith(": 0.900x reference (1.000 s against 900.0 ms)")


@pytest.mark.parametrize("seed", range(5))
def test_equal_cells_are_called_slower_in_under_1_percent_of_runs(seed):
    noise = random.Random(seed)

    def times():
        return [math.exp(noise.gauss(0, 0.1)) for _ in range(20)]

    equals = [result for n in range(1, 201) for result in shaped(n, times(), times())]
    assert slower_cells(*equals) == ["custom is slower than the best peer in 0 of 200 cells"]


def test_strategies_do_not_count_as_peers():
    results = [timed("custom", around(1.0)), timed("custom:tree", around(0.5))]
    assert slower_cells(*results) == []


def test_the_same_case_in_two_tables_is_two_cells():
    pair = [("custom", around(1.0)), ("compile", around(2.0))]
    results = [timed(*each, table=title) for title in ("one", "two") for each in pair]
    assert slower_cells(*results) == ["custom is slower than the best peer in 0 of 2 cells"]


def test_the_same_case_in_two_modes_is_two_cells_and_the_mode_is_named():
    pair = [("custom", around(1.0)), ("compile", around(0.5))]
    results = [timed(*each, mode=mode) for mode in ("device", "graph") for each in pair]
    told = slower_cells(*results)
    assert told[0] == "custom is slower than the best peer in 2 of 2 cells"
    assert told[2].startswith("    mse 4096x4096 float32 mean, forward graph: 0.500x compile")


def test_cell_without_a_time_of_custom_is_reported():
    other = case(shape=(8, 8), target_shape=(8, 8))
    results = [
        failed(),
        timed("compile", around(1.0)),
        timed("custom", around(1.0), case=other),
        timed("compile", around(2.0), case=other),
    ]
    assert slower_cells(*results) == [
        "custom is slower than the best peer in 0 of 1 cell",
        "custom was not timed in 1 cell where a peer was",
        "    mse 4096x4096 float32 mean, forward: failed",
    ]


@pytest.mark.parametrize("format", ["table", "md"])
def test_peer_comparison_stands_before_the_summary_line(format):
    bench = run(timed("custom", around(1.0)), timed("reference", around(1.1)))
    *_, comparison, quoted = render(bench, format).split("\n\n")
    assert comparison == "custom is slower than the best peer in 0 of 1 cell"
    assert conclusion(bench).splitlines() == [comparison, quoted]
