"""`losscli compare` and `losscli runs`, from arguments to exit code."""

import csv
import errno
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fabricated import elsewhere, machine
from test_cli import run_without_torch
from test_report_bench import case, failed, result, run, skipped

import losscli
from losscli.cli import main
from losscli.report import render


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a run in JSON, in the directory that the test runs in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOSSCLI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(Path(losscli.__file__).parents[1]))
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def write(name, made, format="json"):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(made, format) + "\n")

    return write


@pytest.fixture
def slower(write):
    """Have a baseline and a run whose custom kernel is slower by a tenth."""
    write("base.json", machine(1))
    write("new.json", machine(2, slowed="custom", by=1.1), "jsonl")


def compare(*arguments):
    return main.run(["compare", *arguments])


def test_table_of_a_comparison_as_a_whole(write, capsys):
    def timed(median, size=4096, pass_="forward"):
        where = case(shape=(size, size), target_shape=(size, size))
        return result("custom", pass_, median, case=where)

    write("base.json", run(timed(1e-3), timed(1e-3, 64), timed(2e-3, 64, "forward_backward")))
    write("new.json", run(timed(1.2e-3), timed(1e-3, 64), timed(1e-3, 8)))
    assert compare("base.json", "new.json") == 0
    assert (
        capsys.readouterr().out
        == """\
base: base.json, 2026-01-02T03:04:05+00:00, A CPU, 2 threads, torch 2.13.0
new: new.json, 2026-01-02T03:04:05+00:00, A CPU, 2 threads, torch 2.13.0

case                        pass  impl        base       new  new/base     interval  verdict
--------------------------  ----  ------  --------  --------  --------  -----------  -------
mse 4096x4096 float32 mean  fwd   custom  1.000 ms  1.200 ms     1.200  1.134-1.269  SLOWER
mse 64x64 float32 mean      fwd   custom  1.000 ms  1.000 ms     1.000  0.945-1.058  unclear

loss  pass  impl    cases  geometric mean of new/base
----  ----  ------  -----  --------------------------
mse   fwd   custom      2                       1.095

timed only in base.json: 1 row
    mse 64x64 float32 mean, custom, forward+backward
timed only in new.json: 1 row
    mse 8x8 float32 mean, custom, forward

noise from run to run: 2.0 %, assumed, because there are too few controls: 0 of 6
all intervals hold together with 99 % confidence

new.json against base.json: 2 rows, 1 slower, 1 unclear
1 row of base.json was not timed in new.json (1 absent)
"""
    )


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


def test_comparison_report_fits_100_columns(slower, capsys):
    compare("base.json", "new.json", "--fail-on", "5%")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


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


def test_fail_on_undecided_needs_a_fraction(write, capsys):
    write("base.json", machine(1))
    assert compare("base.json", "base.json", "--fail-on-undecided") == 2
    assert "--fail-on-undecided needs a threshold" in capsys.readouterr().err


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


def test_the_report_says_how_far_controls_are_off_beside_the_noise(write, capsys):
    write("base.json", machine(1))
    write("new.json", machine(2, slowed="functional", by=1.2))
    compare("base.json", "new.json")
    noise = " ".join(capsys.readouterr().out.split("\n\n")[-2].split())
    assert "of PyTorch's own implementations; the ratios of these controls are off by " in noise
    assert " % in the median, 2" in noise


def test_duplicate_result_is_refused(write, capsys):
    write("base.json", machine(1))
    write("twice.jsonl", run(result(), result("reference"), result(median=1.0)), "jsonl")
    assert compare("base.json", "twice.jsonl") == 2
    told = capsys.readouterr().err
    assert "twice.jsonl: result 3 is not valid: it repeats result 1 (mse 4096" in told
    assert told.endswith("mean, custom, forward); remove one of the two.\n")


def test_a_result_without_samples_is_refused(write, capsys):
    made = result()
    write("base.json", run(made))
    write("empty.json", run(replace(made, seconds=replace(made.seconds, samples=()))))
    assert compare("base.json", "empty.json") == 2
    assert "result 1 is not valid: 'seconds': 'samples' is empty" in (capsys.readouterr().err)


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
        *("seconds_before", "seconds_after"),
        *("ratio", "ratio_low", "ratio_high", "verdict", "control", "regression", "undecided"),
    ]
    assert row["ratio"] == pytest.approx(row["seconds_after"] / row["seconds_before"])


def test_comparison_in_each_other_format(slower, capsys):
    compare("base.json", "new.json", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 48
    assert {row["verdict"] for row in rows if row["implementation"] == "custom"} == {"slower"}
    compare("base.json", "new.json", "--format", "jsonl")
    header, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert (header["kind"], len(lines)) == ("compare", 48)
    compare("base.json", "new.json", "--format", "md", "-o", "report.md")
    assert "| case" in Path("report.md").read_text()
    assert capsys.readouterr().err.endswith("\n\nlosscli: wrote report.md\n")


def test_in_github_actions_the_step_gets_a_summary(slower, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("before\n")
    assert compare("base.json", "new.json", "--fail-on", "5%") == 1
    summary = Path("summary.md").read_text()
    assert summary.startswith("before\n## losscli compare\n\nbase: base.json, ")
    assert "| mse 64x64 float32 mean" in summary
    assert "16 rows slower by more than 5 %" in summary


def test_unwritable_step_summary_does_not_end_the_command(slower, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/no/where")
    assert compare("base.json", "new.json") == 0
    told = capsys.readouterr().err
    assert told == "losscli: cannot write the step summary /no/where: No such file or directory\n"


def test_runs_of_different_machines_are_refused(slower, write, capsys):
    write("other.json", elsewhere(machine(2), cpu="Another CPU", torch="2.14.0"))
    assert compare("base.json", "other.json") == 2
    assert capsys.readouterr().err == (
        "losscli: error: base.json and other.json cannot be compared: different CPU: A CPU, then "
        "Another CPU. Add --force to compare them anyway.\n"
    )
    assert compare("base.json", "other.json", "--force") == 0
    assert (
        "NOT COMPARABLE: different CPU: A CPU, then Another CPU\nnote: different torch: 2.13.0, "
        in (capsys.readouterr().out)
    )


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([result(cache="warm")], "differ in the cache: 'cold' in base.json, 'warm' in new.json."),
        ([result(mode="host")], "differ in the mode: 'device' in base.json, 'host' in new.json."),
        ([result(table="peers")], "differ in the table: '' in base.json, 'peers' in new.json."),
        ([result("reference")], "differ in the implementation: 'custom' in base.json, 'reference'"),
        (
            [result(case=case(seed=1)), result(case=case(seed=2))],
            "differ in the seed: 0 in base.js",
        ),
        ([result(case=case(target_shape=(64,)))], "in the size of the target: 4096x4096 in base"),
        (
            [result("reference", "forward_backward")],
            "base.json begins with mse 4096x4096 float32 mean, custom, forward. new.json begins "
            "with mse 4096x4096 float32 mean, reference, forward+backward.",
        ),
        ([skipped()], "Nothing was timed in new.json."),
    ],
)
def test_runs_without_a_common_case_are_refused(write, capsys, rows, why):
    write("base.json", run(result()))
    write("new.json", run(*rows))
    assert compare("base.json", "new.json") == 2
    told = capsys.readouterr().err
    assert "base.json and new.json have no timed case in common. " in told
    assert why in told


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.json", None, "there is no run 'missing.json'. Name a result in JSON or JSONL,"),
        ("", None, "there is no run ''."),
        (".", None, "'.' is a directory."),
        ("base.json", "", "'base.json' is not a result of losscli. Name a file that"),
        ("base.json", "[1, 2]", "'base.json' is not a result of losscli."),
        ("base.json", "loss,shape\nmse,8x8\n", "'base.json' is not a result of losscli."),
        ("base.json", '{"a": 1}', "'base.json' is not a result of losscli."),
        ("base.json", b"\xff\xfe\x00", "'base.json' is not a result of losscli."),
        (
            "base.json",
            '{"schema_version": 2, "kind": "bench", "results": []}',
            "base.json was written by a later losscli: its schema_version is 2, this losscli reads "
            "up to 1. Upgrade losscli.",
        ),
        (
            "base.json",
            '{"schema_version": 1, "kind": "verify", "results": []}',
            "base.json holds a run of 'verify'. Name one of `losscli bench`.",
        ),
        (
            "base.json",
            '{\n  "schema_version": 1,\n  "kind": "bench",\n  "results": [',
            "base.json is cut off or damaged: ",
        ),
        (
            "base.json",
            '{"schema_version": 1, "kind": "bench", "results": [{"case": {"loss": 5}}]}',
            "base.json: result 1 is not valid: ",
        ),
        (
            "base.json",
            '{"schema_version": 1, "kind": "bench"}\n{"case": \n{"case": {}}\n',
            "base.json:2: this line is not JSON. The file is damaged.",
        ),
    ],
)
def test_unreadable_run_is_one_message(slower, capsys, name, text, message):
    if isinstance(text, bytes):
        Path(name).write_bytes(text)
    elif text is not None:
        Path(name).write_text(text)
    assert compare(name, "new.json", "--fail-on", "5%") == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("losscli: error: ")
    assert message in told.err
    assert told.err.count("\n") == 1


def test_whole_lines_of_a_cut_off_file_are_read(slower, capsys):
    whole = Path("new.json").read_text().splitlines(keepends=True)
    Path("cut.jsonl").write_text("".join([*whole[:4], whole[4][:100]]))
    assert compare("base.json", "cut.jsonl") == 0
    out = capsys.readouterr().out
    assert "cut.jsonl against base.json: 3 rows, " in out
    assert "timed only in base.json: 45 rows\n" in out
    assert "    and 35 more\n" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a baseline and at least one other run: losscli compare BASE NEW."),
        (("base.json",), "name a baseline and at least one other run"),
        (("base.json", "new.json", "--fail-on", "much"), "'much' is not a fraction"),
        (("base.json", "new.json", "-o", "/no/where"), "there is no directory '/no'"),
    ],
)
def test_wrong_arguments_of_compare_exit_2(slower, capsys, arguments, message):
    assert compare(*arguments) == 2
    assert message in capsys.readouterr().err


def test_full_disk_is_one_message_of_compare(slower, capsys):
    assert compare("base.json", "new.json", "-o", "/dev/full") == 4
    assert capsys.readouterr().err == (
        "losscli: error: cannot write /dev/full: No space left on device.\n"
    )


def test_compare_needs_no_torch(slower):
    told = run_without_torch("compare", "base.json", "new.json", "--fail-on", "5%")
    assert (told.returncode, told.stderr) == (1, "")
    assert run_without_torch("runs").returncode == 0


def test_runs_that_were_saved_are_listed_and_compared_by_name(write, capsys):
    write("data/runs/base.jsonl", elsewhere(machine(1), commit="0123456789ab"), "jsonl")
    write("data/runs/new.jsonl", machine(2), "jsonl")
    write("data/runs/new.jsonl.journal.jsonl", machine(3), "jsonl")
    os.utime("data/runs/base.jsonl", (0, 0))
    assert main.run(["runs"]) == 0
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [
        ["base", "2026-01-02T03:04:05+00:00", "A", "CPU", "8", "0123456789ab"],
        ["new", "2026-01-02T03:04:05+00:00", "A", "CPU", "8"],
    ]
    assert compare("base", "new", "--fail-on", "5%") == 0
    assert "new against base: 48 rows" in capsys.readouterr().out
    assert compare("bse", "new") == 2
    assert "unknown run 'bse'. Did you mean 'base'? Choose from: base, new." in (
        capsys.readouterr().err
    )


def test_file_wins_over_a_saved_run_of_that_name(write, capsys):
    write("data/runs/base.jsonl", machine(1), "jsonl")
    write("base", run(result("reference")))
    assert compare("base", "base") == 0
    assert "base against base: 1 row" in capsys.readouterr().out


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(write, capsys):
    write("data/runs/good.jsonl", machine(1), "jsonl")
    Path("data/runs/bad.jsonl").write_text("bad")
    assert main.run(["runs", "--format", "json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["good"]["problem"] is None
    assert "is not a result of losscli" in listed["bad"]["problem"]
    assert listed["good"]["path"].endswith("data/runs/good.jsonl")


def test_without_saved_runs_the_directory_is_named(write, capsys):
    assert main.run(["runs"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "data/runs. `losscli bench --save NAME` saves one." in told.err


def test_other_mode_and_cache_stand_beside_the_pass(write, capsys):
    rows = [result(mode=mode, cache=cache) for mode, cache in (("host", "cold"), ("graph", "warm"))]
    write("base.json", run(result(), *rows))
    assert compare("base.json", "base.json") == 0
    out = capsys.readouterr().out
    rows = [line.partition("custom")[0].rstrip() for line in out.splitlines()[5:8]]
    assert [row[row.index("fwd") :] for row in rows] == ["fwd", "fwd host", "fwd graph warm"]
    assert "\nmse   fwd graph warm  custom      1 " in out
    assert "\nnoise from run to run (graph, warm): 2.0 %, assumed, " in out
    compare("base.json", "base.json", "--format", "csv")
    listed = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [(row["mode"], row["cache"]) for row in listed] == [
        *(("device", "cold"), ("host", "cold"), ("graph", "warm")),
    ]


@pytest.mark.parametrize("output", ["base.json", "./new.json", "link"])
def test_report_does_not_overwrite_a_compared_run(slower, capsys, output):
    Path("link").symlink_to("new.json")
    before = [Path(name).read_text() for name in ("base.json", "new.json")]
    assert compare("base.json", "new.json", "-o", output) == 2
    assert "itself. Name another file." in capsys.readouterr().err
    assert [Path(name).read_text() for name in ("base.json", "new.json")] == before


def test_report_replaces_the_earlier_report_as_a_whole(slower, monkeypatch):
    def break_off(*paths):
        raise OSError(errno.EIO, "Input/output error")

    Path("report").write_text("before")
    Path("report").chmod(0o640)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", break_off)
        assert compare("base.json", "new.json", "-o", "report") == 4
    assert Path("report").read_text() == "before"
    assert compare("base.json", "new.json", "-o", "report") == 0
    assert Path("report").read_text().startswith("base: base.json")
    assert Path("report").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir()) == ["base.json", "new.json", "report"]


def test_a_closed_output_pipe_exits_141(slower):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "losscli", "compare", "base.json", "new.json"]
    command += ["-o", f"/dev/fd/{writer}"]
    done = subprocess.run(command, pass_fds=(writer,), stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
