import json
import random
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.compare.history import history
from tests.fabricated import elsewhere, machine
from tests.parameters import titled


def at_commit(made, index, **facts):
    """Return a run as that of a commit, begun later than those before it."""
    created = f"2026-01-{1 + index // 24:02}T{index % 24:02}:00:00+00:00"
    return replace(elsewhere(made, commit=f"c{index:03}", **facts), created=created)


def measured(count, seed=0, *, slow_from=None, larger_from=None, **noise):
    """Return so many runs of a machine; custom is slower, or larger, from some commit on.

    The runs have the rows of one of the machine's losses: a history of all takes twice as long.
    """

    def enlarged(each, index):
        is_larger = larger_from is not None and index >= larger_from
        more = 2**20 * (is_larger and each.implementation == "custom")
        return replace(each, peak_extra_bytes=each.peak_extra_bytes + more)

    runs = {}
    for index in range(count):
        slow = slow_from is not None and index >= slow_from
        made = machine(1000 * seed + index, slowed="custom" if slow else None, by=1.1, **noise)
        rows = (enlarged(each, index) for each in made.results if each.case.loss == "mse")
        runs[f"run{index:03}"] = at_commit(replace(made, results=tuple(rows)), index)
    return runs


def steps(runs, **given):
    """Return the changes that are found: figure, implementation and commit of each."""
    return [
        (step.metric, series.result.implementation, step.commit)
        for series in history(runs, **given).series
        for step in series.steps
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [
        {"between": 0.02},
        {"between": 0.05},
        {"between": 0.02, "shared": 0.05},
        {"between": 0.02, "bursts": 0.1},
        {"between": 0.01, "within": 0.05},
    ],
    ids=str,
)
def test_hundred_runs_without_a_change_raise_no_alarm(noise):
    assert steps(measured(100, **noise)) == []


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 50), *(pytest.param(n, 100, marks=pytest.mark.slow) for n in (0, 1, 2))]
)
def test_runs_that_are_disturbed_now_and_then_raise_no_alarm(seed, count):
    chance = random.Random(seed)

    def disturbed(result):
        slow = 1.3 if chance.random() < 0.03 else 1.0
        seconds = result.seconds
        samples = tuple(slow * sample for sample in seconds.samples)
        other = replace(seconds, median=slow * seconds.median, samples=samples)
        return replace(result, seconds=other)

    runs = {
        name: replace(run, results=tuple(map(disturbed, run.results)))
        for name, run in measured(count, seed, between=0.02).items()
    }
    assert steps(runs) == []


def test_few_runs_without_a_change_raise_no_alarm():
    for count in (2, 3, 4, 6):
        assert [steps(measured(count, seed, between=0.02)) for seed in range(8)] == [[]] * 8


def test_slowdown_by_a_tenth_and_one_mebibyte_more_are_found_at_their_commits():
    for figure, given in (
        ("time", {"slow_from": 10, "between": 0.005}),
        ("memory", {"larger_from": 10, "between": 0.05}),
    ):
        found = steps(measured(20, **given))
        assert len(found) == 8
        assert set(found) == {(figure, "custom", "c010")}


def test_slowdown_and_the_speedup_that_takes_it_back_are_found():
    slow, fast = measured(16, slow_from=8, between=0.005), measured(24, between=0.005)
    found = set(steps(fast | slow))
    assert found == {("time", "custom", "c008"), ("time", "custom", "c016")}


def test_runs_of_one_commit_are_one_point():
    runs = measured(8, slow_from=4, between=0.005)
    again = {f"{name}-again": run for name, run in measured(8, 1, slow_from=4).items()}
    found = history(runs | again)
    assert [point.runs for point in found.series[0].points] == [2] * 8
    assert {step.commit for series in found.series for step in series.steps} == {"c004"}


def test_runs_of_another_machine_are_left_out():
    runs = measured(3)
    runs["run000"] = elsewhere(runs["run000"], cpu="Another CPU")
    found = history(runs)
    assert found.left_out == {"run000": "different CPU: Another CPU, then A CPU"}
    assert found.commits == ("c001", "c002")


def test_file_has_the_commits_of_its_own_repository():
    runs = {f"r{n}": at_commit(machine(n), 0, file_commit=f"f{n}") for n in range(2)}
    assert history(runs).commits == ("f0", "f1")


def command(*arguments):
    return main.run(["history", *arguments])


@pytest.fixture
def saved(write):
    """Save twenty runs, slower and larger from the eleventh on."""
    for name, run in measured(20, slow_from=10, larger_from=10, between=0.005).items():
        write(f"data/runs/{name}.jsonl", run, "jsonl")


ONE = ("--filter", "loss=mse,size=64x64,impl=custom,pass=forward")


def test_reports_are_as_in_the_golden_file(saved, golden, capsys):
    texts = {}
    for options in ((), ONE, ("run003", *ONE)):
        assert command(*options) == 0
        texts[" ".join(options) or "all rows"] = capsys.readouterr().out
    golden("history.txt", titled(texts))
    assert max(len(line) for text in texts.values() for line in text.splitlines()) <= 100


def test_json_has_the_points_and_where_they_change(saved, capsys):
    assert command(*ONE, "--format", "json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["schema_version"], record["kind"]) == (2, "history")
    (row,) = record["rows"]
    assert [point["commit"] for point in row["points"]] == record["commits"]
    steps = {step["metric"]: step["commit"] for step in row["steps"]}
    assert steps == {"time": "c010", "memory": "c010"}
    assert command(*ONE, "--format", "csv") == 0
    assert len(capsys.readouterr().out.splitlines()) == 21
    assert command(*ONE, "--format", "jsonl", "-o", "history.jsonl") == 0
    assert json.loads(Path("history.jsonl").read_text().splitlines()[1])["case"] == row["case"]


def test_unreadable_runs_are_left_out_and_wrong_arguments_exit_2(saved, refused, capsys):
    Path("data/runs/broken.jsonl").write_text("{}\n")
    assert command(*ONE) == 0
    assert "left out broken: " in capsys.readouterr().err
    refused("history broken", "broken")
    Path("data/runs/broken.jsonl").unlink()
    refused("history --filter size=3x3", "--filter matches no row")
    refused("history no_such_run", "unknown run 'no_such_run'")
    refused("history --over HEAD", "not a git repository")


def test_without_runs_it_says_how_to_save_one(write, capsys):
    assert command() == 2
    assert "`losscli bench --save NAME` saves one" in capsys.readouterr().err


def test_over_takes_the_runs_of_these_commits_in_their_order(write, capsys):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    commits = []
    for index in range(3):
        words = [*git, "commit", "-q", "--allow-empty", "-m", f"commit {index}"]
        subprocess.run(words, check=True)
        head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)
        commits.append(head[:12])
    for index, commit in enumerate(reversed(commits)):  # measured in the order of none
        run = elsewhere(at_commit(machine(index), index), commit=commit)
        write(f"data/runs/run{index}.jsonl", run, "jsonl")
    assert command(*ONE, "--over", "HEAD~1..HEAD", "--format", "json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["commits"] == commits[2:]
    assert command(*ONE, "--over", "HEAD", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["commits"] == commits
    assert command("--over", "nonsense") == 2
    assert "bad revision 'nonsense'" in capsys.readouterr().err
