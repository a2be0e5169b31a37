"""`losscli compare` and `losscli runs`, from arguments to exit code."""

import csv
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from losscli.cli import main
from tests.comparing import compare
from tests.fabricated import elsewhere, machine
from tests.handmade import case, result, run, skipped
from tests.without_torch import run_without_torch


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

new/base: the new time over that of the baseline, above 1 the new run is slower; interval: holds the
      next ratio too; same: within the threshold; unclear: too few or too scattered samples to
      decide

noise from run to run: 2.0 %, assumed, because there are too few controls: 0 of 6
all intervals hold together with 99 % confidence

new.json against base.json: 2 rows, 1 slower, 1 unclear
1 row of base.json was not timed in new.json (1 absent)
"""
    )


def test_comparison_report_fits_100_columns(slower, capsys):
    compare("base.json", "new.json", "--fail-on", "5%")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


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
    write("base.json", run(result()))
    record = json.loads(Path("base.json").read_text())
    record["results"][0]["seconds"]["samples"] = []
    Path("empty.json").write_text(json.dumps(record))
    assert compare("base.json", "empty.json") == 2
    assert "result 1 is not valid: 'seconds': 'samples' is empty" in (capsys.readouterr().err)


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
        "losscli: error: cannot write /dev/full: No space left on device. Name another file.\n"
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
        ["base", "finished", "2026-01-02T03:04:05+00:00", "A", "CPU", "8", "0123456789ab"],
        [
            "new",
            *["finished,", "a", "later", "one", "was", "killed"],
            *["2026-01-02T03:04:05+00:00", "A", "CPU", "8"],
        ],
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
