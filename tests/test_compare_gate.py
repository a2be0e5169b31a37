"""`losscli compare --fail-on`: what exits 1, and what it says."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.comparing import compare
from tests.fabricated import machine
from tests.handmade import failed, result, run, skipped


@pytest.fixture
def gate(write, capsys):
    """Return a function that compares two runs; it returns the exit code and what is printed."""

    def run_gate(base, new, *options, names=("base.json", "new.json")):
        for name, made in (("base.json", base), ("new.json", new)):
            if made:
                write(name, made)
        capsys.readouterr()
        code = compare(*names, *options)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run_gate


FIVE = ("--fail-on", "5%")
SLOWED = machine(2, slowed="custom", by=1.1)


def test_a_kernel_slowed_by_a_tenth_exits_1_after_the_report_and_names_the_cases(gate):
    code, report, _ = gate(machine(1), SLOWED, *FIVE)
    answer, slower, *_ = (part.splitlines() for part in report.split("\n\n"))
    assert code == 1
    assert answer[0] == "16 rows slower by more than 5 % and beyond the measured noise"
    assert answer[1].startswith("new.json against base.json: 48 rows, ")
    assert (slower[0], len(slower)) == ("slower beyond the limit:", 17)
    assert all(line.startswith("    ") and ", custom, " in line for line in slower[1:])
    assert gate(None, None, "--fail-on", "0.2")[0] == 0
    assert gate(None, None)[0] == 0


def disturbed(made):
    rows = (replace(row, conditions={"others": 0.4}) for row in made.results)
    return replace(made, results=tuple(rows))


def test_rows_that_other_programs_disturbed_are_asked_for_again(gate):
    slow = machine(1, slowed="custom", by=1.1)
    code, report, _ = gate(machine(1), disturbed(slow), *FIVE)
    assert code == 4
    assert "no other row slower by more than 5 %" in report
    assert "AGAIN: 16 rows were timed while other programs used the machine" in report
    assert "FAILED" not in report
    # What is slower than a disturbed baseline is slower.
    assert gate(disturbed(machine(1)), slow, *FIVE)[0] == 1


def test_noise_exits_1_only_where_it_can_hide_a_slowdown(gate):
    assert gate(machine(1, between=0.002), machine(2, between=0.002), *FIVE)[0] == 0
    for by in (1.0, 1.1):
        noisy = machine(1, between=0.1), machine(2, between=0.1, slowed="custom", by=by)
        code, out, err = gate(*noisy, *FIVE)
        assert code == 1
        assert out.startswith("no row slower by more than 5 % and beyond the measured noise\n")
        assert "16 of 16 rows are too noisy to detect a change of 5 %\n" in out
        assert "FAILED: 16 rows of custom are undecided; --no-fail-on-undecided accepts" in out
        assert "quieter machine, take more samples, have" in err
        code, out, _ = gate(None, None, *FIVE, "--no-fail-on-undecided")
        assert (code, "FAILED" in out) == (0, False)
        code, _, err = gate(None, None)
        assert (code, err) == (0, "")
        code, out, _ = gate(None, None, *FIVE, "--format", "json")
        record = json.loads(out)
        (comparison,) = record["comparisons"]
        assert (code, record["failed"]) == (1, True)
        assert comparison["undecided"] == sum(row["undecided"] for row in comparison["rows"]) == 16


def test_a_comparison_that_judges_no_row_exits_1(gate):
    control = run(result("reference"))
    code, out, _ = gate(control, control, *FIVE)
    assert code == 1
    assert "FAILED: no row of new.json could be judged" in out
    assert gate(None, None, *FIVE, "--no-fail-on-undecided")[0] == 0
    code, _, err = gate(None, None, "--fail-on-undecided")
    assert code == 2
    assert "--fail-on-undecided needs a limit" in err


def without(made, implementation):
    rows = (r for r in made.results if r.implementation != implementation)
    return replace(made, results=tuple(rows))


def test_rows_of_custom_that_are_missing_or_skipped_exit_1(gate):
    one = replace(machine(2), results=machine(2).results[2:3])
    code, out, _ = gate(machine(1), one, "--fail-on", "50%")
    assert code == 1
    assert "FAILED: 15 rows of custom are missing; --no-fail-on-missing accepts that" in out
    assert "    and 5 more\n" in out
    assert gate(None, None, "--fail-on", "50%", "--no-fail-on-missing")[0] == 0

    left = without(machine(2), "custom").results
    custom = (r for r in machine(2).results if r.implementation == "custom")
    passed_over = [skipped(case=r.case, pass_=r.pass_, implementation="custom") for r in custom]
    for others in ([], passed_over):
        assert gate(machine(1), run(*left, *others), *FIVE)[0] == 1
        assert gate(None, None)[0] == 0


def test_missing_rows_of_other_implementations_fail_only_by_name(gate):
    assert gate(machine(1), without(machine(2), "functional"), "--fail-on", "20%")[0] == 0
    code, out, _ = gate(None, None, "--fail-on", "20%", "--fail-on-missing")
    assert code == 1
    assert "FAILED: 16 rows of functional are missing" in out
    assert gate(None, None, "--fail-on-missing")[0] == 1


def test_a_file_that_is_cut_in_its_last_line_fails_the_gate(gate, write):
    write("cut.jsonl", machine(1), "jsonl")
    # The last row is a control's here: nothing else would show that it is gone.
    lines = Path("cut.jsonl").read_text().splitlines()
    Path("cut.jsonl").write_text("\n".join([*lines[:-1], lines[-3][:200]]))
    for names in (("base.json", "cut.jsonl"), ("cut.jsonl", "base.json")):
        code, out, _ = gate(machine(1), None, "--fail-on", "50%", names=names)
        assert code == 1
        assert "FAILED: the last line of cut.jsonl is cut off" in out
        options = ("--fail-on", "50%", "--no-fail-on-missing")
        assert gate(None, None, *options, names=names)[0] == 0


def test_a_kernel_that_fails_exits_1_and_is_named(gate):
    broken = [
        failed(case=r.case, pass_=r.pass_) if r.implementation == "custom" else r
        for r in machine(1).results
    ]
    code, out, _ = gate(machine(1), run(*broken[:-3]), *FIVE)
    assert code == 1
    assert out.split("\n\n")[1].splitlines()[:2] == [
        "18 rows of base.json were not timed in new.json (15 failed, 3 absent)",
        "    FAILED mse 64x64 float32 mean, custom, forward: loss: 9 ulp",
    ]
    assert gate(None, None)[0] == 0
    code, out, _ = gate(run(result()), run(failed()), *FIVE)  # every kernel
    assert code == 1
    assert "1 row of base.json was not timed in new.json (1 failed)\n    FAILED mse 4096" in out
    assert gate(None, None, *FIVE, "--format", "csv")[0] == 1


def test_several_runs_are_each_compared_with_the_first(gate, write):
    write("same.json", machine(3))
    names = ("base.json", "same.json", "new.json")
    code, out, _ = gate(machine(1), SLOWED, *FIVE, "--format", "json", names=names)
    record = json.loads(out)
    assert code == 1
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
