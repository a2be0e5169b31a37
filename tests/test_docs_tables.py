import pytest
from msgspec.structs import replace

from docs import baselines, program, tables, times
from losscli.losses import EVERY_LOSS, EVERY_ROW_LOSS, LOSSES, ROW_FORMS
from losscli.runs.measurements import Speedup
from tests.handmade import around, case, result, run, timed
from tests.parameters import titled

SMALL = case(shape=(32, 32), target_shape=(32, 32))
RATIO = {"compile": Speedup(0.9, 0.88, 0.92)}


def timings(*each, **changes):
    """Return results of implementations with their median and what is special about them."""
    return [timed(name, around(median), **(more | changes)) for name, median, more in each]


def logits(*shape, **changes):
    params = ROW_FORMS["cross_entropy"].resolve({})
    return case(loss="cross_entropy", shape=shape, target_shape=shape[:1], params=params, **changes)


def of_rows():
    seconds = {"custom": 1e-3, "functional": 4e-3, "reference": 5e-3, "compile": 3e-3}
    return timings(*((name, each, {}) for name, each in seconds.items()), case=logits(4096, 1024))


def of_layouts():
    cases = ((case(), 1.0), (case(layout="sliced"), 2.0), (case(grad_output=0.5), 4.0))
    for of, own in cases:
        yield from timings(
            ("custom", own, {}), ("compile", 3.0, {}), case=of, pass_="forward_backward"
        )


def of_weights():
    passes = (
        ("forward", (1e-3, {"reference": 9.0, "functional": 4.0, "compile": 1.1})),
        ("forward_backward", (2e-3, {"reference": 3.0, "functional": 5.0, "compile": 1.2})),
    )
    for loss in ("log_cosh", "weighted_log_cosh"):
        for pass_, own in passes:
            for name, seconds, speedup in (("custom", *own), ("reference", 1.0, {})):
                given = {"case": case(loss=loss), "pass_": pass_, "speedup": speedup}
                yield result(name, median=seconds, **given)


def of_hidden_states():
    spec = EVERY_LOSS["linear_cross_entropy"]
    of = case(
        loss=spec.name,
        shape=(8192, 4096, 128256),
        target_shape=(8192,),
        dtype="bfloat16",
        params=spec.resolve({"memory_budget": 3e8}),
    )
    for name, seconds, extra in (("custom", 40e-3, 2**28), ("liger", 80e-3, 2**31)):
        made = timed(name, around(seconds), case=of, pass_="forward_backward")
        yield replace(made, peak_extra_bytes=extra)


FEW = around(1.0, count=3)
SCATTERED = [0.8] * 8 + [1.2] * 3
TWO = timings(("custom", 1.0, {"table": "peers"}), ("compile", 2.0, {"table": "peers"})) + timings(
    ("custom", 3.0, {"table": "sums"}), ("custom:tree", 4.0, {"table": "sums"})
)
TABLES = {
    "slower cell is bold and counted": (
        baselines.ratios,
        timings(
            *(("custom", 4.5e-6, {}), ("reference", 9e-6, {}), ("compile", 4e-6, {})), case=SMALL
        )
        + timings(("custom", 1e-3, {}), ("compile", 2e-3, {})),
    ),
    "usual layout": (baselines.ratios, [*of_layouts()]),
    "other layouts and grad_outputs": (baselines.axes, [*of_layouts()]),
    "all layouts are counted": (baselines.slower, [*of_layouts()]),
    "cell within noise is not bold": (
        baselines.ratios,
        [timed("custom", around(1.0)), timed("compile", around(0.95, width=0.1))],
    ),
    "ratio of the rounds is preferred": (
        baselines.ratios,
        timings(("custom", 1.0, {"ratios": RATIO}), ("compile", 0.95, {})),
    ),
    "count by single verdicts": (
        baselines.slower,
        [
            timed("custom", around(1.0), ratios={"compile": Speedup(0.9, 0.8, 0.95)}),
            timed("compile", SCATTERED),
        ],
    ),
    "too few samples": (
        baselines.slower,
        [timed("custom", FEW), timed("compile", [sample * 0.9 for sample in FEW])],
    ),
    "case in two tables is one cell with the worse ratio": (
        baselines.ratios,
        timings(("custom", 1.0, {}), ("reference", 3.0, {}), table="one")
        + timings(("custom", 2.0, {}), ("compile", 1.0, {}), table="two"),
    ),
    "strategies are in their own table only": (times.strategies, TWO),
    "peers": (times.bench, TWO),
    "speedup of another table has no time": (
        times.bench,
        [
            result("custom", table="one", speedup={"reference": 2.0}),
            timed("reference", around(1.0), table="one"),
            result("custom", table="two", speedup={"compile": 1.5}),
            timed("compile", around(1.0), table="two"),
        ],
    ),
    "faster of reference and functional, no weights": (times.losses, [*of_weights()]),
    "losses over rows": (times.rows, of_rows()),
    "losses over rows with quack": (
        times.rows,
        [*of_rows(), *timings(("quack", 2e-3, {}), case=logits(4096, 1024))],
    ),
    "hidden states": (times.linear, [*of_hidden_states()]),
}


def test_tables_are_as_in_the_golden_file(golden):
    made = {title: table(run(*results)) for title, (table, results) in TABLES.items()}
    golden("docs_tables.md", titled(made))


def test_marker_keys_select_results():
    sizes = run(timed("custom", around(1.0)), timed("custom", around(2.0), case=SMALL))
    (chosen,) = tables.only(sizes, {"loss": "mse", "size": "32x32"}).results
    assert chosen.case == SMALL
    dtypes = ("float32", "float64", "float16")
    made = run(*(timed("custom", around(1.0), case=case(dtype=dtype)) for dtype in dtypes))
    several = tables.only(made, {"dtype": "float32,float64"}).results
    assert tuple(result.case.dtype for result in several) == dtypes[:2]
    for keys in ({"loss": "huber"}, {"shape": "32x32"}):
        with pytest.raises(ValueError, match="no result has"):
            tables.only(made, keys)


def test_functions_of_the_losses_have_a_row_each():
    for unit, losses in (("element", LOSSES), ("row", EVERY_ROW_LOSS)):
        lines = [line for line in program.functions(unit).splitlines() if line.startswith("| `")]
        functions = dict.fromkeys(f"`{spec.function_name}`" for spec in losses.values())
        assert [line.split(" | ")[0].strip("| ") for line in lines] == list(functions)
    assert "| `mask`, `temperature` |" in program.functions("row")
