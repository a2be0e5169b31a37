import math
from itertools import product

from msgspec.structs import replace

from losscli.render.records import render
from losscli.runs.measurements import Error
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, Run, VerifyResult
from losscli.units import format_ulp
from losscli.views.document import Table, blocks_of
from losscli.views.verify import view
from tests.handmade import case_of
from tests.parameters import naming, titled

MACHINE = {"device": "cpu", "cpu": "a CPU", "threads": 2, "torch": "2"}
LOOSENED = "8 ulp: a logarithm of a sum"
HALF, SUM = {"dtype": "float16"}, {"dtype": "float16", "reduction": "sum"}


def checked(
    check, loss="smooth_l1", name="custom", status=PASS, reason="", shape=(37, 101), **more
):
    facts = {key: more.pop(key) for key in ("error", "reference_error", "tolerance") if key in more}
    return VerifyResult(case_of(loss, shape, **more), name, check, status, reason, **facts)


def of_case(loss="smooth_l1", name="custom", status=PASS, reason="", tolerance="", **changes):
    """Return the three checks of one case; keywords change the case."""
    value = {
        "error": Error(value_abs=1e-7, value_rel=2.94e-8, value_ulp=0.5),
        "reference_error": Error(value_rel=1e-7, value_ulp=1.25),
        "tolerance": tolerance,
    }
    return [
        checked("value", loss, name, status, reason, **value, **changes),
        checked("input_gradient", loss, name, error=Error(grad_ulp=0.75), **changes),
        checked("target_gradient", loss, name, error=Error(grad_ulp=2.0), **changes),
    ]


def failures(*sizes, **changes):
    given = {"loss": "mse", "status": FAIL} | changes
    return [r for n in sizes for r in of_case(shape=(n,), reason=f"wrong at {n}", **given)]


def shrunk():
    """Return a failure, and the same on a smaller case."""
    (failure, *others), (smaller, *_) = failures(64), failures(1)
    return [failure, replace(smaller, shrunk_from=failure.case.name), *others]


def of_two_seeds():
    first, second = (of_case(shape=(64,), seed=seed) for seed in (1, 2))
    return [*first, replace(second[0], error=Error(value_rel=1e-7, value_ulp=1.9)), *second[1:]]


def of_each(**changes):
    """Return the results of two dtypes, two reductions and two implementations."""
    axes = product(("float32", "bfloat16"), ("none", "mean"), ("reference", "functional"))
    each = (of_case(dtype=dtype, reduction=how, name=name, **changes) for dtype, how, name in axes)
    return [result for results in each for result in results]


REPORTS = {
    "checks go down and losses across; what all rows share has no column": [
        *(*of_case("mse"), *of_case("hinge"))
    ],
    "a cell counts the cases and has the largest error; dtype and reduction have columns": [
        *(*of_case("mse"), *of_case("mse", **SUM))
    ],
    "cells with failures or warnings count them; the verdict is the worst of the checks": [
        *(*of_case("mse", status=FAIL), *of_case("mse", status=WARN, **HALF)),
        *(*of_case("mse", dtype="bfloat16"), *of_case("hinge", status=WARN)),
        *of_case("hinge", **HALF),
    ],
    "skipped and inapplicable checks have no count; a skipped case has a reason and no row": [
        checked("memory", "mse", status=SKIPPED, reason="needs 9 GiB"),
        checked("value", "mse", status=SKIPPED, reason="needs 9 GiB"),
        *(checked("memory"), *of_case("hinge")),
    ],
    "a check that is skipped in all cases is skipped for all losses": [
        checked("streams", "mse", status=SKIPPED, reason="runs only on a GPU"),
        *of_case("hinge"),
    ],
    "failures come before warnings, in full": [
        *of_case("mse", status=WARN, reason="less accurate"),
        *of_case("hinge", status=FAIL, reason="expected 1, got 2 at [3, 1]"),
    ],
    "failures of one kind are shown once, on the smallest case": [
        *(*failures(64, 8, 32), *of_case("mse", shape=(5,)))
    ],
    "a shrunk failure names its case and is not counted": shrunk(),
    "failures of two implementations are two": [*failures(8), *failures(8, name="reference")],
    "failures of two dtypes are one": [*failures(8), *failures(8, **HALF)],
    "a pass with a reason is shown once": [
        *of_case("mse", reason="0.5 % clamped: supplemented"),
        *of_case("mse", reason="0.7 % clamped: supplemented", **HALF),
    ],
    "a name shows parameters and distribution": [
        *of_case(params={"beta": 0.5}),
        *of_case(params={"beta": 2.0}, distribution="normal"),
        *of_case(name="reference"),
    ],
    "the verdict shows a loosened tolerance, and its reason once": [
        *(*of_case("mse"), *of_case("hinge", tolerance="16 ulp")),
        *(*of_case(tolerance=LOOSENED), *of_case(tolerance=LOOSENED, **HALF)),
    ],
    "cases that differ in their seed alone have a row each": of_two_seeds(),
}


def run_of(*results):
    return Run(kind="verify", environment=MACHINE, results=results)


def test_reports_are_as_in_the_golden_file(golden):
    texts = {}
    for title, results in REPORTS.items():
        texts[title] = render(run_of(*results), "table")
        texts[f"{title}: -v"] = render(run_of(*results), "table", verbose=True)
    golden("verify_report.txt", titled(texts))


def test_losses_that_do_not_fit_the_width_get_another_table():
    run = run_of(*of_case("mse"), *of_case("hinge"), *of_case())
    first = next(blocks_of(view(run, verbose=True), Table))
    assert (first.headers, first.splits) == (["check", "mse", "hinge", "smooth_l1"], True)
    lines = render(run, "table", verbose=True, width=60).splitlines()
    assert [line.split() for line in lines if line.startswith("check")][:2] == [
        ["check", "mse", "hinge"],
        ["check", "smooth_l1"],
    ]


def test_figures_of_many_cases_are_shown_by_verbose():
    many = run_of(*(r for size in range(1, 20) for r in of_case("mse", shape=(size,))))
    assert "verdict" not in render(many, "table")
    assert render(many, "md", verbose=True).count("| pass") >= 19


def test_markdown_has_the_line_of_python_in_a_paragraph_of_its_own():
    page = render(run_of(*failures(8)), "md")
    assert "To repeat it in Python:\n\nfrom losscli.verify import repeat; " in page
    assert "\n\n\n" not in page


def test_tables_of_long_names_and_of_usual_ones_fit_100_columns_and_lose_nothing():
    reason = "expected 0.123456789, got 0.987654321 at [12345, 12345] " * 4
    long = {"params": {"beta": 0.123456}, "distribution": "heavy_tailed", "tolerance": "16 ulp"}
    usual = run_of(*of_each(shape=(32768, 32768), status=FAIL, reason=reason))
    named = run_of(*of_each(shape=(1048576, 11, 12, 13, 1, 1, 1), **long))
    for run in (usual, named):
        lines = render(run, "table", verbose=True).splitlines()
        assert max(map(len, lines)) <= 100
    top = next(number for number, line in enumerate(lines) if line.startswith("case"))
    case_width = lines[top].index("impl")
    name = "".join("".join(line[:case_width].split()) for line in lines[top:])
    assert "smooth_l1beta=0.1234561048576x11x12x13x1x1x1heavy_tailed" in name


ULPS = {0.0: "0", 0.004: "0.00", 1.9: "1.90", 12.4: "12", 8388608.0: "8e+06", math.inf: "inf"}


def test_ulp_is_formatted_in_five_characters():
    for ulp, text in ULPS.items():
        with naming(ulp):
            assert format_ulp(ulp) == text
