"""The report of `losscli verify`: a table of checks and losses, then failures in full."""

import pytest
from msgspec.structs import replace

from losscli.render.records import render
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN, VerifyResult
from losscli.views.document import tables
from losscli.views.verify import failures as failures_of
from losscli.views.verify import reasons, summary, view


def first_table(run):
    return next(tables(view(run, verbose=True)))


def notes(run):
    return [*failures_of(run, verbose=True), *reasons(run)]


def cells(run):
    """The first table, as a mapping from check and loss."""
    table = first_table(run)
    (_, *losses), rows = table.headers, table.rows
    return {
        (check, loss): cell for check, *row in rows for loss, cell in zip(losses, row, strict=True)
    }


def test_checks_go_down_and_losses_across(make_run, case_results):
    run = make_run(*case_results("mse"), *case_results("hinge"))

    table = first_table(run)

    assert table.headers == ["check", "mse", "hinge"]
    assert [row[0] for row in table.rows] == ["value", "input_gradient", "target_gradient"]


def test_a_cell_counts_the_cases_and_gives_the_largest_error(make_run, case_results):
    run = make_run(*case_results("mse"), *case_results("mse", dtype="float16"))

    assert cells(run)["value", "mse"] == "pass 2, 0.50 ulp"
    assert cells(run)["target_gradient", "mse"] == "pass 2, 2.00 ulp"


def test_a_cell_with_failures_or_warnings_counts_them(make_run, case_results):
    run = make_run(
        *case_results("mse", status=FAIL),
        *case_results("mse", status=WARN, dtype="float16"),
        *case_results("mse", dtype="bfloat16"),
        *case_results("hinge", status=WARN),
        *case_results("hinge", dtype="float16"),
    )

    assert cells(run)["value", "mse"] == "FAIL 1/3, 0.50 ulp"
    assert cells(run)["value", "hinge"] == "WARN 1/2, 0.50 ulp"


def test_skipped_and_inapplicable_checks_have_no_count(make_run, make_case, case_results):
    run = make_run(
        VerifyResult(make_case("mse"), "custom", "memory", SKIPPED, "needs 9 GiB"),
        VerifyResult(make_case(), "custom", "memory", PASS),
        *case_results("hinge"),
    )

    assert cells(run)["memory", "mse"] == "skipped"
    assert cells(run)["memory", "hinge"] == cells(run)["value", "mse"] == "-"


def test_check_skipped_in_all_cases_is_skipped_for_all_losses(make_run, make_case, case_results):
    run = make_run(
        VerifyResult(make_case("mse"), "custom", "streams", SKIPPED, "runs only on a GPU"),
        *case_results("hinge"),
    )

    assert cells(run)["streams", "mse"] == cells(run)["streams", "hinge"] == "skipped"


def test_losses_that_do_not_fit_the_width_get_another_table(make_run, case_results):
    run = make_run(*case_results("mse"), *case_results("hinge"), *case_results())

    wide, narrow = (render(run, "table", width) for width in (100, 60))

    assert "check            mse" in wide
    assert wide.count("\ncheck ") == 1
    assert narrow.count("\ncheck ") == 2


def test_figures_of_few_cases_follow_and_of_many_only_in_markdown(make_run, case_results):
    few = make_run(*case_results("mse"))
    many = make_run(*(r for size in range(1, 20) for r in case_results("mse", shape=(size,))))

    assert "input  target  verdict" in render(few, "table")
    assert "verdict" not in render(many, "table")
    assert "verdict" in render(many, "table", verbose=True)
    assert render(many, "md").count("| pass") >= 19


def test_failures_come_before_warnings_in_full(make_run, case_results):
    run = make_run(
        *case_results("mse", status=WARN, reason="less accurate"),
        *case_results("hinge", status=FAIL, reason="expected 1, got 2 at [3, 1]"),
    )

    assert [note for note in notes(run) if note[:4] in ("FAIL", "WARN")] == [
        "FAIL hinge 37x101 float32 mean, custom, value: expected 1, got 2 at [3, 1]",
        "WARN mse 37x101 float32 mean, custom, value: less accurate",
    ]


def test_summary_line_of_a_verify_run(make_run, make_case, case_results):
    run = make_run(
        *case_results("mse"),
        *case_results("hinge", status=FAIL),
        VerifyResult(make_case(), "custom", "value", SKIPPED, "no memory"),
    )

    assert summary(run) == (
        "verify: 5 checks of 2 cases passed, 0 warnings, 1 failed, 1 skipped; "
        "largest error 2.00 ulp"
    )


def test_markdown_has_the_line_of_python_in_a_paragraph_of_its_own(make_run, case_results):
    page = render(make_run(*failing(case_results, 8)), "md")

    assert "wrong at 8\n\nfrom losscli.verify import repeat; " in page
    assert "\n\n\n" not in page


def failing(case_results, *sizes, **changes):
    """A failure of `value` at each size."""
    return [
        result
        for size in sizes
        for result in case_results(
            "mse", shape=(size,), status=FAIL, reason=f"wrong at {size}", **changes
        )
    ]


def test_failures_of_one_kind_are_shown_once_on_the_smallest_case(make_run, case_results):
    run = make_run(*failing(case_results, 64, 8, 32), *case_results("mse", shape=(5,)))

    assert notes(run) == [
        "FAIL mse 8 float32 mean, custom, value: wrong at 8. Fails in 3 of 4 cases",
        'from losscli.verify import repeat; repeat("custom", "value", "mse", (8,), seed=0)',
    ]


def test_shrunk_failure_names_its_case_and_is_not_counted(make_run, case_results):
    (failure, *others) = failing(case_results, 64)
    (smaller, *_) = failing(case_results, 1)
    shrunk = replace(smaller, shrunk_from=failure.case.name)
    run = make_run(failure, shrunk, *others)

    assert notes(run)[0] == (
        "FAIL mse 1 float32 mean, custom, value: wrong at 1. Shrunk from mse 64 float32 mean"
    )
    assert cells(run)["value", "mse"].startswith("FAIL 1/1")
    assert summary(run) == summary(make_run(failure, *others))


@pytest.mark.parametrize("change", [{"implementation": "reference"}, {"dtype": "float16"}])
def test_failures_of_two_implementations_are_two_and_those_of_two_dtypes_one(
    make_run, case_results, change
):
    run = make_run(*failing(case_results, 8), *failing(case_results, 8, **change))

    told = [note for note in notes(run) if note.startswith("FAIL")]
    assert len(told) == (2 if "implementation" in change else 1)


def test_pass_with_a_reason_is_shown_once(make_run, case_results):
    run = make_run(
        *case_results("mse", reason="0.5 % clamped: supplemented"),
        *case_results("mse", reason="0.7 % clamped: supplemented", dtype="float16"),
    )

    assert notes(run) == [
        "PASS mse 37x101 float32 mean, custom, value: 0.5 % clamped: supplemented. "
        "The same in 2 of 2 cases"
    ]


def test_of_many_failures_the_first_is_shown_and_the_others_are_named(make_run, case_results):
    results = [r for check in range(30) for r in failing(case_results, 8)[:1]]
    many = [replace(r, check=f"check{number}") for number, r in enumerate(results)]
    run = make_run(*many, *case_results("mse", shape=(5,)))

    text = render(run, "table")

    assert text.startswith("verify: 3 checks of 2 cases passed, 0 warnings, 30 failed, 0 skipped")
    assert text.count("wrong at 8") == 1
    assert (
        "29 more checks fail the same way (-v): check1, check2, check3, check4 and 25 more" in text
    )
    assert len(text.splitlines()) <= 40
    assert render(run, "table", verbose=True).count("wrong at 8") == 30
