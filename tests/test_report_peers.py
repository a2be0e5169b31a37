"""Where custom loses is counted and named, and noise is not called a loss."""

import pytest
from test_report_bench import case, failed, result, run

from losscli.report import digest, render
from losscli.report.peers import lines
from losscli.results import Ratio, Seconds


def timed(name, samples, **changes):
    middle = sorted(samples)[len(samples) // 2]
    seconds = Seconds(middle, min(samples), max(samples), min(samples), tuple(samples))
    return result(name, seconds=seconds, **changes)


def around(median, width=0.001, count=11):
    """Return samples within a width on both sides of a median."""
    return [median * (1 + width * (n - count // 2) / (count // 2)) for n in range(count)]


def test_one_line_where_there_is_no_loss():
    results = [timed("custom", around(1.0)), timed("compile", around(1.1))]
    assert lines(run(*results)) == ["custom is slower than the best peer in 0 of 1 cell"]


def test_a_loss_is_named_with_the_best_peer_and_the_ratio():
    results = [
        timed("custom", around(1.0e-3)),
        timed("reference", around(0.99e-3)),
        timed("compile", around(0.95e-3)),
        timed("custom", around(1.0e-3), pass_="forward_backward"),
        timed("compile", around(2.0e-3), pass_="forward_backward"),
    ]
    assert lines(run(*results)) == [
        "custom is slower than the best peer in 1 of 2 cells",
        "    mse 4096x4096 float32 mean, forward: 0.950x compile (1.000 ms against 950.0 us)",
    ]


@pytest.mark.parametrize(
    ("peer", "losses"),
    [
        (around(0.95, width=0.10), 0),  # their intervals overlap
        (around(0.95, width=0.01), 1),
        ([0.94, 0.95, 0.96], 1),  # too few for an interval: all that they span
        ([0.94, 0.95, 1.5], 0),
    ],
)
def test_noise_is_no_loss(peer, losses):
    results = [timed("custom", around(1.0)), timed("compile", peer)]
    assert lines(run(*results))[0] == f"custom is slower than the best peer in {losses} of 1 cell"


FASTER, SLOWER, UNCLEAR = Ratio(1.2, 1.1, 1.3), Ratio(0.9, 0.88, 0.92), Ratio(0.8, 0.7, 1.1)


@pytest.mark.parametrize(
    ("ratio", "peer", "losses"),
    [
        (SLOWER, around(0.95, width=0.10), 1),  # the intervals overlap, the rounds tell them apart
        (UNCLEAR, around(0.80), 0),  # and the other way round
        (FASTER, around(0.80), 0),
    ],
    ids=["slower", "unclear", "faster"],
)
def test_the_verdict_of_the_rounds_is_what_counts_where_there_is_one(ratio, peer, losses):
    results = [timed("custom", around(1.0), ratios={"compile": ratio}), timed("compile", peer)]
    told = lines(run(*results))
    assert told[0] == f"custom is slower than the best peer in {losses} of 1 cell"
    assert [line.split(": ")[1] for line in told[1:]] == [
        "0.900x compile (1.000 s against 950.0 ms)"
    ][:losses]


def test_of_many_cells_a_loss_has_to_be_clearer_than_of_one():
    ratio = Ratio(0.95, 0.92, 0.98)
    pair = [timed("custom", around(1.0), ratios={"compile": ratio}), timed("compile", around(0.95))]
    shapes = [case(shape=(n, 8), target_shape=(n, 8)) for n in range(1, 101)]
    ties = [
        timed(name, around(1.0), case=shape, ratios=ratios)
        for shape in shapes
        for name, ratios in (("custom", {"compile": Ratio(1.0, 0.99, 1.01)}), ("compile", {}))
    ]
    assert lines(run(*pair))[0] == "custom is slower than the best peer in 1 of 1 cell"
    assert lines(run(*pair, *ties)) == ["custom is slower than the best peer in 0 of 101 cells"]


def test_slower_than_any_peer_is_slower_whichever_has_the_better_median():
    ratios = {"compile": UNCLEAR, "reference": SLOWER}
    results = [
        timed("custom", around(1.0), ratios=ratios),
        timed("compile", around(0.8)),
        timed("reference", around(0.9)),
    ]
    assert lines(run(*results))[1].endswith(": 0.900x reference (1.000 s against 900.0 ms)")


def test_strategies_are_no_peers():
    results = [timed("custom", around(1.0)), timed("custom:tree", around(0.5))]
    assert lines(run(*results)) == []


def test_the_same_case_in_two_tables_is_two_cells():
    pair = [("custom", around(1.0)), ("compile", around(2.0))]
    results = [timed(*each, table=title) for title in ("one", "two") for each in pair]
    assert lines(run(*results)) == ["custom is slower than the best peer in 0 of 2 cells"]


def test_the_same_case_in_two_modes_is_two_cells_and_the_mode_is_named():
    pair = [("custom", around(1.0)), ("compile", around(0.5))]
    results = [timed(*each, mode=mode) for mode in ("device", "graph") for each in pair]
    told = lines(run(*results))
    assert told[0] == "custom is slower than the best peer in 2 of 2 cells"
    assert told[2].startswith("    mse 4096x4096 float32 mean, forward graph: 0.500x compile")


def test_a_cell_that_custom_has_no_time_for_is_no_win():
    other = case(shape=(8, 8), target_shape=(8, 8))
    results = [
        failed(),
        timed("compile", around(1.0)),
        timed("custom", around(1.0), case=other),
        timed("compile", around(2.0), case=other),
    ]
    assert lines(run(*results)) == [
        "custom is slower than the best peer in 0 of 1 cell",
        "custom was not timed in 1 cell where a peer was",
        "    mse 4096x4096 float32 mean, forward: failed",
    ]


@pytest.mark.parametrize("format", ["table", "md"])
def test_the_report_ends_with_it_before_the_line_to_quote(format):
    bench = run(timed("custom", around(1.0)), timed("reference", around(1.1)))
    *_, comparison, quoted = render(bench, format).split("\n\n")
    assert comparison == "custom is slower than the best peer in 0 of 1 cell"
    assert digest(bench).splitlines() == [comparison, quoted]
