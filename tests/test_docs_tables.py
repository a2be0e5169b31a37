"""The tables of the documents, made from records."""

import pytest
from msgspec.structs import replace

from losscli.losses import EVERY_LOSS, EVERY_ROW_LOSS, LOSSES, ROW_FORMS
from losscli.runs.records import Speedup
from tests.documents import tables
from tests.handmade import around, case, result, run, timed

PARAMS = ROW_FORMS["cross_entropy"].resolve({})
SMALL = case(shape=(32, 32), target_shape=(32, 32))


def rows(table):
    """Return the cells of each row, the headers first."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in (lines[0], *lines[2:])]


def test_slower_cell_is_bold_and_counted():
    results = [
        timed("custom", around(4.5e-6), case=SMALL),
        timed("reference", around(9.0e-6), case=SMALL),
        timed("compile", around(4.0e-6), case=SMALL),
        timed("custom", around(1.0e-3)),
        timed("compile", around(2.0e-3)),
    ]
    text = tables.ratios(run(*results))
    assert rows(text) == [
        ["loss", "pass", "dtype", "2^10", "2^24"],
        ["mse", "fwd", "float32", "**0.89**", "2.00"],
    ]
    said = " ".join(text.splitlines()[-2:])
    assert said.endswith("1 of 2 cells: all at 2^10 elements (behind compile by at most 500 ns).")


def test_other_layouts_and_incoming_gradients_have_a_table_of_their_own():
    sliced, half = case(layout="sliced"), case(grad_output=0.5)
    results = [
        timed(name, around(seconds), case=of, pass_="forward_backward")
        for of, own in ((case(), 1.0), (sliced, 2.0), (half, 4.0))
        for name, seconds in (("custom", own), ("compile", 3.0))
    ]
    made = run(*results)
    assert [row[-1] for row in rows(tables.ratios(made))[1:]] == ["3.00"]
    assert [row[2:] for row in rows(tables.axes(made))[1:]] == [
        ["sliced", "float32", "1.50"],
        ["0.5", "float32", "**0.75**"],
    ]
    assert "1 of 3 cells" in tables.slower(made)


def test_cell_within_noise_is_not_bold():
    results = [timed("custom", around(1.0)), timed("compile", around(0.95, width=0.1))]
    text = tables.ratios(run(*results))
    assert rows(text)[1][-1] == "0.95"
    assert "in none of 1 cell." in text


def test_ratio_of_the_rounds_is_preferred():
    ratios = {"compile": Speedup(0.9, 0.88, 0.92)}
    results = [timed("custom", around(1.0), ratios=ratios), timed("compile", around(0.95))]
    text = tables.ratios(run(*results))
    assert rows(text)[1][-1] == "**0.90**"
    assert "(behind compile by at most 100 ms)" in " ".join(text.split())


def test_count_by_single_verdicts_is_given_too():
    ratios = {"compile": Speedup(0.9, 0.8, 0.95)}
    scattered = [0.8] * 8 + [1.2] * 3
    results = [timed("custom", around(1.0), ratios=ratios), timed("compile", scattered)]
    said = " ".join(tables.slower(run(*results)).split())
    assert "in none of 1 cell. By its own interval of 95 % each, it would be in 1." in said


def test_cell_with_too_few_samples_is_counted():
    few = around(1.0, count=3)
    results = [timed("custom", few), timed("compile", [sample * 0.9 for sample in few])]
    said = " ".join(tables.slower(run(*results)).split())
    assert said.endswith("in none of 1 cell. In 1 it is behind with too few samples to tell.")


def test_case_in_two_tables_is_one_cell_with_the_worse_ratio():
    results = [
        timed(name, around(seconds), table=table)
        for table, name, seconds in (
            ("one", "custom", 1.0),
            ("one", "reference", 3.0),
            ("two", "custom", 2.0),
            ("two", "compile", 1.0),
        )
    ]
    text = tables.ratios(run(*results))
    assert rows(text)[1][-1] == "**0.50**"
    assert "in 1 of 1 cell" in text


def test_strategies_stand_in_their_own_table_only():
    results = [
        timed("custom", around(1.0), table="peers"),
        timed("compile", around(2.0), table="peers"),
        timed("custom", around(3.0), table="sums"),
        timed("custom:tree", around(4.0), table="sums"),
    ]
    made = rows(tables.strategies(run(*results)))
    assert [row[:2] for row in made[1:]] == [["`custom`", "3.000 s"], ["`custom:tree`", "4.000 s"]]
    assert "tree" not in tables.bench(run(*results))


def test_a_speedup_of_another_table_stands_without_its_time():
    results = [
        result("custom", table="one", speedup={"reference": 2.0}),
        timed("reference", around(1.0), table="one"),
        result("custom", table="two", speedup={"compile": 1.5}),
        timed("compile", around(1.0), table="two"),
    ]
    headers, row = rows(tables.bench(run(*results)))
    assert row[headers.index("reference")] == "1.000 s (2.00x)"
    assert row[headers.index("compile")] == "1.50x"


def test_table_of_losses_has_the_faster_of_reference_and_functional_and_no_weights():
    own, weighted = case(loss="log_cosh"), case(loss="weighted_log_cosh")
    results = [
        result(name, case=of, pass_=pass_, median=seconds, speedup=speedup)
        for of in (own, weighted)
        for pass_, times in (
            ("forward", (1e-3, {"reference": 9.0, "functional": 4.0, "compile": 1.1})),
            ("forward_backward", (2e-3, {"reference": 3.0, "functional": 5.0, "compile": 1.2})),
        )
        for name, seconds, speedup in (("custom", *times), ("reference", 1.0, {}))
    ]
    assert rows(tables.losses(run(*results))) == [
        ["loss", "fwd", "fwd, speedup", "fwd+bwd", "fwd+bwd, speedup"],
        ["log_cosh", "1.000 ms", "4.00x functional", "2.000 ms", "3.00x reference"],
    ]


def test_marker_keys_select_results():
    bench = run(timed("custom", around(1.0)), timed("custom", around(2.0), case=SMALL))
    (chosen,) = tables.only(bench, {"loss": "mse", "size": "32x32"}).results
    assert chosen.case == SMALL


@pytest.mark.parametrize("keys", [{"loss": "huber"}, {"shape": "32x32"}])
def test_marker_keys_that_select_nothing_are_an_error(keys):
    with pytest.raises(ValueError, match="no result has"):
        tables.only(run(timed("custom", around(1.0))), keys)


def test_table_of_rows_has_a_column_for_each_peer_that_was_timed():
    logits = case(loss="cross_entropy", shape=(4096, 1024), target_shape=(4096,), params=PARAMS)
    seconds = {"custom": 1e-3, "functional": 4e-3, "reference": 5e-3, "compile": 3e-3}
    results = [timed(name, around(each), case=logits) for name, each in seconds.items()]
    ((*_, first),) = (rows(tables.rows(run(*results))),)
    assert first[0].startswith("cross_entropy 4096x1024")
    assert first[1:] == ["1.000 ms", "4.000 ms", "3.000 ms", "3.00x"]
    with_quack = rows(tables.rows(run(*results, timed("quack", around(2e-3), case=logits))))
    assert with_quack[0][-4:] == ["fastest of PyTorch", "compile", "quack", "speedup"]
    assert with_quack[1][-3:] == ["3.000 ms", "2.000 ms", "2.00x"]


def test_goals_stand_beside_the_times_and_those_without_one_are_named():
    logits = case(
        loss="cross_entropy",
        shape=(8192, 32000),
        target_shape=(8192,),
        dtype="bfloat16",
        params=PARAMS,
    )
    results = [
        timed("custom", around(120e-6), case=logits),
        timed("compile", around(3e-4), case=logits),
    ]
    text = tables.goals(run(*results))
    (row,) = rows(text)[1:]
    assert row == ["cross_entropy 8192x32000 bfloat16", "125 / 256", "120 / -", "300 / -"]
    said = " ".join(text.partition("Not in the record")[2].split())
    assert "cross_entropy 8192x128256 bfloat16," in said
    assert "8192x32000" not in said.replace("softcap=30 8192x32000", "")


@pytest.mark.parametrize("unit", ["element", "row"])
def test_functions_of_the_losses_have_a_row_each(unit):
    losses = LOSSES if unit == "element" else EVERY_ROW_LOSS
    found = rows(tables.functions(unit))[1:]
    assert [row[0] for row in found] == list(
        dict.fromkeys(f"`{spec.function_name}`" for spec in losses.values())
    )
    assert "| `mask`, `temperature` |" in tables.functions("row")


def test_marker_keys_may_name_several_values():
    results = [
        timed("custom", around(1.0), case=case(dtype=dtype)) for dtype in ("float32", "float64")
    ]
    made = run(*results, timed("custom", around(1.0), case=case(dtype="float16")))
    chosen = tables.only(made, {"dtype": "float32,float64"}).results
    assert [result.case.dtype for result in chosen] == ["float32", "float64"]


def test_hidden_states_have_their_share_of_the_products_and_memory() -> None:
    spec = EVERY_LOSS["linear_cross_entropy"]
    shape = (8192, 4096, 128256)
    budget = spec.resolve({"memory_budget": 3e8})
    of = case(loss=spec.name, shape=shape, target_shape=(8192,), dtype="bfloat16", params=budget)
    given = {"case": of, "pass_": "forward_backward"}
    made = run(
        replace(timed("custom", around(40e-3), **given), peak_extra_bytes=2**28),
        replace(timed("liger", around(80e-3), **given), peak_extra_bytes=2**31),
    )
    assert rows(tables.linear(made)) == [
        ["case", "pass", "custom", "TFLOP/s", "extra memory", "liger"],
        [
            "linear_cross_entropy memory_budget=300MB 8192x4096x128256 bfloat16",
            *("fwd+bwd", "40.00 ms", "646", "256.0 MiB", "80.00 ms, 2.0 GiB"),
        ],
    ]
