import csv
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.comparing import compare
from tests.fabricated import elsewhere, machine
from tests.handmade import case, result, run, skipped
from tests.parameters import titled
from tests.without_torch import run_without_torch


def test_reports_are_as_in_the_golden_file(write, golden, capsys):
    def timed(median, size=4096, pass_="forward"):
        where = case(shape=(size, size), target_shape=(size, size))
        return result("custom", pass_, median, case=where)

    rows = [result(mode=mode, cache=cache) for mode, cache in (("host", "cold"), ("graph", "warm"))]
    write("base.json", run(timed(1e-3), timed(1e-3, 64), timed(2e-3, 64, "forward_backward")))
    write("new.json", run(timed(1.2e-3), timed(1e-3, 64), timed(1e-3, 8)))
    write("modes.json", run(result(), *rows))
    write("quiet.json", machine(1))
    write("off.json", machine(2, slowed="functional", by=1.2))
    texts = {}
    for names, *options in (
        ("base.json new.json",),
        ("modes.json modes.json",),
        ("quiet.json off.json", "--fail-on", "5%"),
    ):
        assert compare(*names.split(), *options) in (0, 1)
        texts[" ".join([names, *options])] = capsys.readouterr().out
    golden("compare.txt", titled(texts))
    assert max(len(line) for text in texts.values() for line in text.splitlines()) <= 100


def test_result_that_is_twice_there_or_without_samples_is_refused(write, capsys):
    write("base.json", machine(1))
    write("twice.jsonl", run(result(), result("reference"), result(median=1.0)), "jsonl")
    assert compare("base.json", "twice.jsonl") == 2
    told = capsys.readouterr().err
    assert "twice.jsonl: result 3 is not valid: it repeats result 1 (mse 4096" in told
    assert told.endswith("mean, custom, forward); remove one of the two.\n")
    record = run(result()).to_json()
    record["results"][0]["seconds"]["samples"] = []
    Path("empty.json").write_text(json.dumps(record))
    assert compare("base.json", "empty.json") == 2
    assert (
        "result 1 is not valid: 'seconds.samples': expected `array` of length >= 1"
        in capsys.readouterr().err
    )


def test_comparison_in_each_other_format(slower, capsys):
    compare("base.json", "new.json", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 48
    assert {row["verdict"] for row in rows if row["implementation"] == "custom"} == {"slower"}
    assert {(row["mode"], row["cache"]) for row in rows} == {("device", "cold")}
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
    assert summary.startswith(
        "before\n## losscli compare\n\nFAILED: 16 rows are slower by more than 5 %"
    )
    assert "| mse 64x64 float32 mean" in summary
    assert "base: base.json, " in summary
    capsys.readouterr()
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


APART = {
    "differ in the cache: 'cold' in base.json, 'warm' in new.json.": [result(cache="warm")],
    "differ in the mode: 'device' in base.json, 'host' in new.json.": [result(mode="host")],
    "differ in the table: '' in base.json, 'peers' in new.json.": [result(table="peers")],
    "differ in the implementation: 'custom' in base.json, 'reference'": [result("reference")],
    "differ in the seed: 0 in base.js": [result(case=case(seed=seed)) for seed in (1, 2)],
    "in the size of the target: 4096x4096 in base": [result(case=case(target_shape=(64,)))],
    "base.json begins with mse 4096x4096 float32 mean, custom, forward. new.json begins with mse "
    "4096x4096 float32 mean, reference, forward+backward.": [
        result("reference", "forward_backward")
    ],
    "Nothing was timed in new.json.": [skipped()],
}


def test_runs_without_a_common_case_are_refused(write, capsys):
    write("base.json", run(result()))
    for why, rows in APART.items():
        write("new.json", run(*rows))
        assert compare("base.json", "new.json") == 2
        told = capsys.readouterr().err
        assert "base.json and new.json have no timed case in common. " in told
        assert why in told


HEAD = '{"schema_version": 1, "kind": "bench"'
NO_RESULT = "'new.json' is not a result of losscli."
UNREADABLE = {
    "": f"{NO_RESULT} Name a file that",
    "[1, 2]": NO_RESULT,
    "loss,shape\nmse,8x8\n": NO_RESULT,
    '{"a": 1}': NO_RESULT,
    "\udcff\udcfe\0": NO_RESULT,
    '{"schema_version": 3, "kind": "bench", "results": []}': (
        "new.json was written by a later losscli: its schema_version is 3, this losscli reads up "
        "to 2. Upgrade losscli."
    ),
    '{"schema_version": 1, "kind": "verify", "results": []}': (
        "new.json holds a run of 'verify'. Name one of `losscli bench`."
    ),
    f'{HEAD},\n  "results": [': "new.json is cut off or damaged: ",
    f'{HEAD}, "results": [{{"case": {{"loss": 5}}}}]}}': "new.json: result 1 is not valid: ",
    f'{HEAD}}}\n{{"case": \n{{"case": {{}}}}\n': (
        "new.json:2: this line is not JSON. The file is damaged."
    ),
}
WRONG = {
    (): "name at least two runs: losscli compare BASE NEW.",
    ("base.json",): "name at least two runs",
    ("base.json", "new.json", "--fail-on", "much"): "'much' is not a fraction",
    ("base.json", "new.json", "-o", "/no/where"): "there is no directory '/no'",
    ("base.json", "missing.json"): (
        "there is no run 'missing.json'. Name a result in JSON or JSONL,"
    ),
    ("base.json", ""): "there is no run ''.",
    ("base.json", "."): "'.' is a directory.",
    ("base.json", "new.json", "-o", "base.json"): "itself. Name another file.",
    ("base.json", "new.json", "-o", "./new.json"): "itself. Name another file.",
    ("base.json", "new.json", "-o", "link"): "itself. Name another file.",
}
FULL = "cannot write /dev/full: No space left on device. Name another file."


def test_wrong_usage_or_record_is_one_message(slower, refused):
    Path("link").symlink_to("new.json")
    before = [Path(name).read_text() for name in ("base.json", "new.json")]
    for arguments, message in WRONG.items():
        refused(["compare", *arguments], message)
    assert [Path(name).read_text() for name in ("base.json", "new.json")] == before
    refused("compare base.json new.json -o /dev/full", FULL, code=4)
    for text, message in UNREADABLE.items():
        Path("new.json").write_bytes(text.encode(errors="surrogateescape"))
        refused("compare base.json new.json", message)


def test_whole_lines_of_a_cut_off_file_are_read(slower, capsys):
    whole = Path("new.json").read_text().splitlines(keepends=True)
    Path("cut.jsonl").write_text("".join([*whole[:4], whole[4][:100]]))
    assert compare("base.json", "cut.jsonl") == 0
    out = capsys.readouterr().out
    assert "cut.jsonl against base.json: 3 rows, " in out
    assert "timed only in base.json: 45 rows\n" in out
    assert "    and 35 more\n" in out


def test_compare_needs_no_torch(slower):
    told = run_without_torch("compare", "base.json", "new.json", "--fail-on", "5%")
    assert (told.returncode, told.stderr) == (1, "")
    assert run_without_torch("runs").returncode == 0


def test_saved_runs_are_compared_by_name_unless_a_file_has_it(write, capsys):
    write("data/runs/base.jsonl", machine(1), "jsonl")
    write("data/runs/new.jsonl", machine(2), "jsonl")
    assert compare("base", "new", "--fail-on", "5%") == 0
    assert "new against base: 48 rows" in capsys.readouterr().out
    assert compare("bse", "new") == 2
    assert "unknown run 'bse'. Did you mean 'base'? Choose from: base, new." in (
        capsys.readouterr().err
    )
    write("base", run(result("reference")))
    assert compare("base", "base") == 0
    assert "base against base: 1 row" in capsys.readouterr().out


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
    assert Path("report").read_text().startswith("new.json against base.json: ")
    assert Path("report").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir()) == ["base.json", "new.json", "report"]


@pytest.mark.slow
def test_a_closed_output_pipe_exits_141(slower):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "losscli", "compare", "base.json", "new.json"]
    command += ["-o", f"/dev/fd/{writer}"]
    done = subprocess.run(command, pass_fds=(writer,), stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
