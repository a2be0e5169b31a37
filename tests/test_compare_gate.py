"""`losscli compare --fail-on`: what exits 1, and what it says."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.comparing import compare
from tests.fabricated import machine
from tests.handmade import failed, result, run, skipped


def test_a_kernel_slowed_by_a_tenth_exits_1_after_the_report_and_names_the_cases(slower, capsys):
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1
    report = capsys.readouterr().out
    conclusion = report.split("\n\n")[-1].splitlines()
    assert conclusion[0].startswith("new.json against base.json: 48 rows, ")
    assert conclusion[1] == "16 rows slower by more than 5 % and beyond the measured noise"
    assert len(conclusion) == 18
    assert all(line.startswith("    ") and ", custom, " in line for line in conclusion[2:])
    assert compare("base.json", "new.json", "--fail-on", "0.2") == 0
    assert compare("base.json", "new.json") == 0


def test_rows_that_other_programs_disturbed_are_asked_for_again(write, capsys):
    quiet = machine(1, slowed="custom", by=1.1)
    disturbed = [replace(row, conditions={"others": 0.4}) for row in quiet.results]
    write("base.json", machine(1))
    write("new.json", replace(quiet, results=tuple(disturbed)))

    assert compare("base.json", "new.json", "--fail-on", "5%") == 4

    report = capsys.readouterr().out
    assert "no other row slower by more than 5 %" in report
    assert "AGAIN: 16 rows were timed while other programs used the machine" in report
    assert "FAILED" not in report

    # What is slower than a disturbed baseline is slower.
    before = [replace(row, conditions={"others": 0.4}) for row in machine(1).results]
    write("base.json", replace(quiet, results=tuple(before)))
    write("new.json", quiet)
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1


def test_noise_below_the_threshold_exits_0(write):
    write("base.json", machine(1, between=0.002))
    write("new.json", machine(2, between=0.002))
    assert compare("base.json", "new.json", "--fail-on", "5%") == 0


@pytest.mark.parametrize("slowdown", [1.0, 1.1], ids=["unchanged", "slowed by 10 %"])
def test_noise_that_can_hide_a_slowdown_exits_1(write, capsys, slowdown):
    write("base.json", machine(1, between=0.1))
    write("new.json", machine(2, between=0.1, slowed="custom", by=slowdown))
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1
    told = capsys.readouterr()
    assert (
        "\n16 of 16 rows are too noisy to detect a change of 5 %\nno row slower by more" in told.out
    )
    assert "FAILED: 16 rows of custom are undecided; --no-fail-on-undecided accepts" in told.out
    assert "quieter machine, take more samples, have" in told.err
    assert compare("base.json", "new.json", "--fail-on", "5%", "--no-fail-on-undecided") == 0
    assert "FAILED" not in capsys.readouterr().out
    assert compare("base.json", "new.json") == 0
    assert capsys.readouterr().err == ""
    assert compare("base.json", "new.json", "--fail-on", "5%", "--format", "json") == 1
    record = json.loads(capsys.readouterr().out)
    (comparison,) = record["comparisons"]
    assert comparison["undecided"] == sum(row["undecided"] for row in comparison["rows"]) == 16
    assert record["failed"]


def test_a_comparison_that_judges_no_row_exits_1(write, capsys):
    write("base.json", run(result("reference")))
    assert compare("base.json", "base.json", "--fail-on", "5%") == 1
    assert "FAILED: no row of base.json could be judged" in capsys.readouterr().out
    assert compare("base.json", "base.json", "--fail-on", "5%", "--no-fail-on-undecided") == 0


def without(made, *, implementation):
    return replace(
        made, results=tuple(r for r in made.results if r.implementation != implementation)
    )


def test_comparison_with_one_of_48_rows_left_exits_1(write, capsys):
    write("base.json", machine(1))
    write("new.json", replace(machine(2), results=machine(2).results[2:3]))
    assert compare("base.json", "new.json", "--fail-on", "50%") == 1
    out = capsys.readouterr().out
    assert "FAILED: 15 rows of custom are missing; --no-fail-on-missing accepts that" in out
    assert out.endswith("    and 5 more\n")
    assert compare("base.json", "new.json", "--fail-on", "50%", "--no-fail-on-missing") == 0


@pytest.mark.parametrize("status", ["absent", "skipped"])
def test_custom_rows_that_are_absent_or_skipped_exit_1(write, status):
    left = without(machine(2), implementation="custom").results
    passed_over = [
        skipped(case=r.case, pass_=r.pass_, implementation="custom")
        for r in machine(2).results
        if r.implementation == "custom" and status == "skipped"
    ]
    write("base.json", machine(1))
    write("new.json", run(*left, *passed_over))
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1
    assert compare("base.json", "new.json") == 0


def test_missing_rows_of_other_implementations_fail_only_by_name(write, capsys):
    write("base.json", machine(1))
    write("new.json", without(machine(2), implementation="functional"))
    assert compare("base.json", "new.json", "--fail-on", "20%") == 0
    assert compare("base.json", "new.json", "--fail-on", "20%", "--fail-on-missing") == 1
    assert "FAILED: 16 rows of functional are missing" in capsys.readouterr().out
    assert compare("base.json", "new.json", "--fail-on-missing") == 1


def test_fail_on_undecided_needs_a_limit(write, capsys):
    write("base.json", machine(1))
    assert compare("base.json", "base.json", "--fail-on-undecided") == 2
    assert "--fail-on-undecided needs a limit" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("base.json", "cut.jsonl"), ("cut.jsonl", "base.json")])
def test_a_file_that_is_cut_in_its_last_line_fails_the_gate(write, capsys, names):
    write("base.json", machine(1))
    write("cut.jsonl", machine(1), "jsonl")
    # The last row is a control's here: nothing else would show that it is gone.
    lines = Path("cut.jsonl").read_text().splitlines()
    Path("cut.jsonl").write_text("\n".join([*lines[:-1], lines[-3][:200]]))
    assert compare(*names, "--fail-on", "50%") == 1
    assert "FAILED: the last line of cut.jsonl is cut off" in capsys.readouterr().out
    assert compare(*names, "--fail-on", "50%", "--no-fail-on-missing") == 0


def test_a_kernel_that_fails_exits_1_and_is_named(write, capsys):
    whole = machine(1).results
    broken = [
        failed(case=r.case, pass_=r.pass_) if r.implementation == "custom" else r for r in whole
    ]
    write("base.json", machine(1))
    write("new.json", run(*broken[:-3]))
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1
    conclusion = capsys.readouterr().out.split("\n\n")[-1].splitlines()
    assert conclusion[1:3] == [
        "18 rows of base.json were not timed in new.json (15 failed, 3 absent)",
        "    FAILED mse 64x64 float32 mean, custom, forward: loss: 9 ulp",
    ]
    assert compare("base.json", "new.json") == 0


def test_a_run_in_which_every_kernel_failed_exits_1(write, capsys):
    write("base.json", run(result()))
    write("new.json", run(failed()))
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1
    out = capsys.readouterr().out
    assert "1 row of base.json was not timed in new.json (1 failed)\n    FAILED mse 4096" in out
    assert compare("base.json", "new.json", "--fail-on", "5%", "--format", "csv") == 1


def test_several_runs_are_each_compared_with_the_first(slower, write, capsys):
    write("same.json", machine(3))
    assert compare("base.json", "same.json", "new.json", "--fail-on", "5%", "--format", "json") == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["kind"], record["schema_version"], record["threshold"]) == ("compare", 1, 0.05)
    same, new = record["comparisons"]
    assert (same["run"], new["run"]) == ("same.json", "new.json")
    assert [sum(row["regression"] for row in each["rows"]) for each in (same, new)] == [0, 16]
    row = new["rows"][2]
    assert list(row) == [
        *("run", "case", "pass", "mode", "cache", "implementation", "table"),
        *("seconds_before", "seconds_after", "peak_extra_bytes_before", "peak_extra_bytes_after"),
        *("ulp_before", "ulp_after"),
        *("ratio", "ratio_low", "ratio_high", "verdict", "control", "regression"),
        *("grown", "undecided"),
    ]
    assert row["ratio"] == pytest.approx(row["seconds_after"] / row["seconds_before"])
