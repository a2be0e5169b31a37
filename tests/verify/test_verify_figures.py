import math
from itertools import product

import pytest
from msgspec.structs import replace

from losscli.render.records import render
from losscli.runs.records import FAIL, SKIPPED, WARN, Error, VerifyResult
from losscli.units import format_ulp
from losscli.views.errors import table
from losscli.views.verify import reasons


def test_figures_have_a_row_per_implementation_dtype_and_reduction(make_run, case_results):
    run = make_run(*case_results("mse"), *case_results("mse", dtype="float16", reduction="sum"))

    headers, rows = table(run).headers, table(run).rows

    assert headers == [
        *("case", "dtype", "reduce"),
        *("rel", "ulp", "torch", "input", "target", "verdict"),
    ]
    assert rows[0] == [
        *("mse 37x101", "float32", "mean"),
        *("2.9e-08", "0.50/2", "1.25", "0.75/4", "2.00/4", "pass"),
    ]
    assert rows[1][:3] == ["", "float16", "sum"]


def test_values_that_all_rows_share_have_no_column(make_run, case_results):
    headers = table(make_run(*case_results("mse"), *case_results("hinge"))).headers

    assert headers[:2] == ["case", "rel"]


def test_case_name_shows_parameters_and_distribution(make_run, case_results):
    run = make_run(
        *case_results(params={"beta": 0.5}),
        *case_results(params={"beta": 2.0}, distribution="normal"),
        *case_results(implementation="reference"),
    )

    headers, rows = table(run).headers, table(run).rows

    assert headers[:2] == ["case", "impl"]
    assert [row[:2] for row in rows] == [
        ["smooth_l1 beta=0.5 37x101", "custom"],
        ["smooth_l1 beta=2 37x101 normal", "custom"],
        ["smooth_l1 beta=1 37x101", "reference"],
    ]


def of_each(case_results, **changes):
    """Return the results of two dtypes, two reductions and two implementations."""
    axes = product(("float32", "bfloat16"), ("none", "mean"), ("reference", "functional"))
    return [
        result
        for dtype, reduction, implementation in axes
        for result in case_results(
            dtype=dtype, reduction=reduction, implementation=implementation, **changes
        )
    ]


def test_a_table_of_long_names_fits_100_columns_and_loses_nothing(make_run, case_results):
    results = of_each(
        case_results,
        shape=(1048576, 11, 12, 13, 1, 1, 1),
        params={"beta": 0.123456},
        distribution="heavy_tailed",
        tolerance="16 ulp",
    )
    run = make_run(*results)

    lines = render(run, "table", verbose=True).splitlines()
    assert max(map(len, lines)) <= 100
    top = next(number for number, line in enumerate(lines) if line.startswith("case"))
    case_width = lines[top].index("impl")
    name = "".join("".join(line[:case_width].split()) for line in lines[top:])
    assert "smooth_l1beta=0.1234561048576x11x12x13x1x1x1heavy_tailed" in name


def test_the_widest_usual_table_fits_100_columns(make_run, case_results):
    results = of_each(
        case_results,
        shape=(32768, 32768),
        status=FAIL,
        reason="expected 0.123456789, got 0.987654321 at [12345, 12345] " * 4,
    )
    run = make_run(*results)

    assert max(map(len, render(run, "table", verbose=True).splitlines())) <= 100


def test_the_verdict_is_the_worst_of_the_checks_and_shows_a_loosened_tolerance(
    make_run, case_results
):
    run = make_run(
        *case_results("mse", status=FAIL),
        *case_results("hinge", status=WARN),
        *case_results(tolerance="16 ulp"),
        *case_results(tolerance="8 ulp: a logarithm of a sum", dtype="float16"),
    )

    assert [row[-1] for row in table(run).rows] == [
        *("FAIL", "WARN", "pass (16 ulp)", "pass (8 ulp)"),
    ]


def test_reason_of_a_loosened_loss_is_shown_once(make_run, case_results):
    run = make_run(
        *case_results("mse"),
        *case_results(tolerance="8 ulp: a logarithm of a sum"),
        *case_results(tolerance="8 ulp: a logarithm of a sum", dtype="float16"),
    )

    assert reasons(run) == ["smooth_l1 has a tolerance of 8 ulp: a logarithm of a sum"]


def test_skipped_case_has_a_reason_and_no_row(make_run, make_case, case_results):
    case = make_case("mse")
    skipped = [VerifyResult(case, "custom", check, SKIPPED, "needs 9 GiB") for check in "ab"]
    run = make_run(*skipped, *case_results("hinge"))

    assert [row[0] for row in table(run).rows] == ["hinge 37x101"]
    assert reasons(run) == ["skipped custom (mse 37x101 float32 mean): needs 9 GiB"]


@pytest.mark.parametrize(
    ("ulp", "text"),
    [
        (0.0, "0"),
        (0.004, "0.00"),
        (1.9, "1.90"),
        (12.4, "12"),
        (8388608.0, "8e+06"),
        (math.inf, "inf"),
    ],
)
def test_ulp_is_formatted_in_five_characters(ulp, text):
    assert format_ulp(ulp) == text


def test_cases_that_differ_in_their_seed_alone_have_a_row_each(case_results, make_run):
    first, second = (case_results(shape=(64,), seed=seed) for seed in (1, 2))
    second[0] = replace(second[0], error=Error(value_rel=1e-7, value_ulp=1.9))
    found = table(make_run(*first, *second))
    headers, rows = found.headers, found.rows
    ulp = headers.index("ulp")
    assert [(row[0], row[ulp]) for row in rows] == [
        ("smooth_l1 64 seed=1", "0.50/2"),
        ("smooth_l1 64 seed=2", "1.90/2"),
    ]
