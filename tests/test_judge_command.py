"""`losscli judge` with processes that judge by what a file says of itself."""

import json
import signal
import subprocess

import pytest

from losscli.cli import main
from losscli.errors import (
    EXIT_BUILD,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNFIT,
    EXIT_USAGE,
)
from tests.judging import COMMAND, ROOT, is_there, judge_here, wait_for, write
from tests.parameters import SLOW, naming


@pytest.fixture(autouse=True)
def _fake(monkeypatch, tmp_path):
    judge_here(monkeypatch)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_JUDGE_LOG", str(tmp_path / "log"))


@pytest.fixture
def files(tmp_path):
    """Return a function that writes a file for each thing to be said."""

    def make(*says):
        return [write(tmp_path, f"k{number}.py", each) for number, each in enumerate(says)]

    return make


@pytest.fixture
def job_lines(tmp_path, files):
    """Return a function that writes a jobs file; a text that is no word is a line as it is."""

    def make(*says):
        path = tmp_path / "jobs.jsonl"
        lines = [
            each if each.startswith("{") else json.dumps({"file": file, "id": f"j{number}"})
            for number, (each, file) in enumerate(zip(says, files(*says), strict=True))
        ]
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return make


def judged(tmp_path):
    """Return the ids of the jobs that a process has judged."""
    path = tmp_path / "log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.rsplit(" ", 1)[0] for line in lines]


def verdicts(text):
    """Return the words of verdicts in JSON lines, by id."""
    records = [json.loads(line) for line in text.splitlines()]
    return {record["id"]: record["word"] for record in records}


EXITS = {
    ("RIGHT",): EXIT_OK,
    ("RIGHT", "SLOWER", "RIGHT BUT NO GRADIENT", "SAME ERROR AS PYTORCH"): EXIT_OK,
    ("RIGHT", "RIGHT WITHIN LIMITS"): EXIT_OK,
    ("WRONG",): EXIT_FAILED,
    ("CHEATS",): EXIT_FAILED,
    ("CRASHED", "DOES NOT BUILD", "NOT JUDGED"): EXIT_FAILED,
    ("HANGS",): EXIT_FAILED,
    ("DOES NOT BUILD", "RIGHT"): EXIT_BUILD,
    ("NOT JUDGED", "DOES NOT BUILD"): EXIT_BUILD,
    ("NOT JUDGED",): EXIT_UNFIT,
    ("NOT JUDGED", "RIGHT"): EXIT_UNFIT,
    ("--strict", "RIGHT", "SLOWER"): EXIT_OK,
    ("--strict", "RIGHT", "RIGHT WITHIN LIMITS"): EXIT_FAILED,
}


def test_exit_code_is_that_of_the_worst_verdict(files, capsys):
    for given, code in EXITS.items():
        options = [each for each in given if each == "--strict"]
        with naming(*given):
            named = files(*given[len(options) :])
            assert main.run(["judge", "--no-cache", *options, *named]) == code


def test_files_are_reported_as_blocks_a_table_and_a_line(files, capsys):
    [file] = files("RIGHT")
    assert main.run(["judge", file, "--loss", "smooth_l1"]) == EXIT_OK
    out = capsys.readouterr().out
    assert out.startswith(f"RIGHT  {file}, against smooth_l1 on ")
    assert out.endswith("\n\njudge: 1 of 1 file right\n")
    main.run(["judge", *files("RIGHT", "WRONG"), "--workers", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("judge: 1 of 2 files right, 1 wrong")
    assert sum(line.startswith(("RIGHT  ", "WRONG  ")) for line in lines) == 2


def test_json_has_every_verdict_and_its_feedback(files, capsys):
    main.run(["judge", *files("RIGHT", "WRONG"), "--format", "json"])
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert (record["schema_version"], record["kind"]) == (2, "judge")
    assert sorted(each["verdict"] for each in record["verdicts"]) == ["RIGHT", "WRONG"]
    assert all(each["feedback"] for each in record["verdicts"])
    assert captured.err.count("k0.py") == 1


def test_jobs_give_a_line_each_and_a_broken_one_its_number(job_lines, capsys, tmp_path):
    path = job_lines("RIGHT", '{"file": 3}', "WRONG")
    assert main.run(["judge", "--jobs", path]) == EXIT_FAILED
    out = capsys.readouterr().out
    assert verdicts(out) == {"j0": "RIGHT", f"{path}:2": "NOT JUDGED", "j2": "WRONG"}
    assert f"{path}:2: 'file': expected" in out
    assert sorted(judged(tmp_path)) == ["j0", "j2"]


@SLOW
def test_jobs_of_standard_input_are_judged_as_they_come(files, tmp_path):
    [one, two] = files("RIGHT", "WRONG")
    with start("--jobs", "-", stdin=subprocess.PIPE) as process:
        for file, word in ((one, "RIGHT"), (two, "WRONG")):
            process.stdin.write(json.dumps({"file": file}) + "\n")
            process.stdin.flush()
            assert verdicts(process.stdout.readline()) == {file: word}
        process.stdin.close()
        assert process.wait(30) == EXIT_FAILED


def test_missing_isolation_is_noted_once_a_run(files, capsys):
    main.run(["judge", *files("open", "RIGHT", "open"), "--format", "json"])
    (noted,) = [line for line in capsys.readouterr().err.splitlines() if "isolate files" in line]
    assert noted.endswith("missing: processes, /proc")
    assert "`losscli doctor --isolation`" in noted


def test_options_are_the_defaults_of_jobs(job_lines, capsys, tmp_path):
    path = job_lines("RIGHT")
    assert main.run(["judge", "--jobs", path, "--loss", "mes"]) == EXIT_USAGE
    with open(path, "a") as file:
        file.write(json.dumps({"file": "nowhere.py", "id": "b", "loss": "hinge"}) + "\n")
    main.run(["judge", "--jobs", path, "--loss", "mse"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {record["reference"] for record in records if record["id"] == "b"} == {"hinge"}


def test_second_run_finds_the_verdicts_in_the_cache(files, capsys, tmp_path):
    arguments = ["judge", *files("RIGHT", "WRONG", "NOT JUDGED"), "--format", "jsonl"]
    main.run(arguments)
    capsys.readouterr()
    assert len(judged(tmp_path)) == 3
    main.run(arguments)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["word"]: each["cached"] for each in records} == {
        "RIGHT": True,
        "WRONG": True,
        "NOT JUDGED": False,
    }
    assert len(judged(tmp_path)) == 4
    main.run([*arguments, "--no-cache"])
    assert len(judged(tmp_path)) == 7


def test_resume_judges_nothing_twice(job_lines, capsys, tmp_path):
    path, output = job_lines("RIGHT", "WRONG", "RIGHT"), tmp_path / "out.jsonl"
    assert main.run(["judge", "--jobs", path, "-o", str(output)]) == EXIT_FAILED
    lines = output.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"j1"' in line]
    torn = next(line for line in lines if '"j1"' not in line)
    output.write_text("".join(kept) + torn[:40])
    (tmp_path / "log").unlink()
    arguments = ["judge", "--jobs", path, "--resume", str(output), "--no-cache"]
    assert main.run(arguments) == EXIT_FAILED
    assert sorted(judged(tmp_path)) == ["j0", "j2"]
    assert verdicts(output.read_text()) == {"j0": "RIGHT", "j1": "WRONG", "j2": "RIGHT"}
    assert "already has 1 verdict" in capsys.readouterr().err
    assert main.run(arguments) == EXIT_FAILED
    assert len(judged(tmp_path)) == 2


def test_resume_of_no_output_begins_one_and_verdicts_are_not_overwritten(
    job_lines, capsys, tmp_path
):
    output, jobs = tmp_path / "out.jsonl", job_lines("RIGHT")
    assert main.run(["judge", "--jobs", jobs, "--resume", str(output)]) == EXIT_OK
    assert verdicts(output.read_text()) == {"j0": "RIGHT"}
    before = output.read_text()
    assert main.run(["judge", "--jobs", jobs, "-o", str(output)]) == EXIT_USAGE
    assert f"{output} has verdicts already." in capsys.readouterr().err
    assert output.read_text() == before


def test_report_goes_to_a_file_and_the_summary_to_stderr(files, capsys, tmp_path):
    output = tmp_path / "report"
    for format in ("table", "json", "json"):  # a report is replaced
        main.run(["judge", *files("RIGHT"), "--format", format, "-o", str(output)])
        assert "RIGHT" in output.read_text()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(
        f"judge: 1 of 1 file right, 1 from the cache\n\nlosscli: wrote {output}\n"
    )


def start(*arguments, **streams):
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    return subprocess.Popen([*COMMAND, "judge", *arguments], text=True, **piped)


def pids(tmp_path, count):
    """Wait until so many jobs have begun; return the processes that judge."""
    wait_for(lambda: len(judged(tmp_path)) >= count, 30)
    return {int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "log").read_text().splitlines()}


def expect_gone(processes, seconds=15):
    wait_for(lambda: not any(map(is_there, processes)), seconds)


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(n, marks=SLOW) for n in (signal.SIGTERM, signal.SIGKILL))],
)
def test_signal_keeps_what_is_finished_and_leaves_no_process(job_lines, tmp_path, number):
    output = tmp_path / "out.jsonl"
    path = job_lines("RIGHT", "slow", "slow")
    process = start("--jobs", path, "--workers", "2", "-o", str(output))
    judges = pids(tmp_path, 3)
    wait_for(lambda: output.exists() and output.read_text(), 30)  # the first verdict is finished
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    if number != signal.SIGKILL:
        assert process.returncode == EXIT_INTERRUPTED
        assert err.endswith(f"losscli: interrupted; judge the rest with --resume {output}\n")
        assert err.count("interrupted") == 1
    expect_gone(judges, 15 if number == signal.SIGKILL else 0.1)
    assert verdicts(output.read_text()) == {"j0": "RIGHT"}


@SLOW
def test_closed_pipe_ends_everything(job_lines, tmp_path):
    process = start("--jobs", job_lines("slow", "RIGHT", "RIGHT", "RIGHT"), "--workers", "2")
    process.stdout.close()
    process.stderr.read()
    assert process.wait(60) == 141
    process.stderr.close()
    expect_gone(pids(tmp_path, 1))  # the slow one, unless the pipe broke before it began
