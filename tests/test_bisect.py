"""`losscli bisect` finds the commit since which a case is slower or larger."""

import json
import os
import re
import subprocess
from dataclasses import replace as replace_fields
from pathlib import Path

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.compare.bisect import Bisect
from losscli.compare.change import Change
from losscli.compare.revisions import Bench, Measured, UnmeasurableError
from losscli.config.case_name import config_of_case
from losscli.config.expansion import expand
from losscli.config.loader import load_config
from losscli.errors import UsageError
from losscli.machine.bisection import Range
from tests.handmade import case_of, result

KERNEL = """\
import time
import torch

SECONDS, BYTES = {seconds}, {bytes}


def mse_loss(input, target):
    time.sleep(SECONDS)
    scratch = torch.empty(BYTES, dtype=torch.uint8)
    return torch.mean((input - target) ** 2) + 0 * scratch.numel()
"""
BROKEN = "def mse_loss(:\n"


def git(folder, *words):
    given = ("user.name=a", "user.email=a@b.c", "commit.gpgsign=false", "init.defaultBranch=main")
    options = [word for each in given for word in ("-c", each)]
    command = ["git", "-C", str(folder), *options, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Repository:
    """A repository whose kernel is slower, larger or broken at some of its commits."""

    def __init__(self, folder, commits, *, slow=99, large=99, broken=()):
        self.folder = folder
        (folder / "kernels").mkdir(parents=True)
        git(folder, "init", "-q")
        self.commits = []
        for index in range(commits):
            text = KERNEL.format(
                seconds=0.055 if index >= slow else 0.05,
                bytes=2 * 2**20 if index >= large else 2**20,
            )
            (folder / "kernels" / "loss.py").write_text(BROKEN if index in broken else text)
            (folder / "number").write_text(str(index))
            git(folder, "add", "-A")
            git(folder, "commit", "-q", "-m", f"commit {index}")
            self.commits.append(git(folder, "rev-parse", "HEAD"))

    def state(self):
        """Return all that a command could have changed."""
        words = ("status --porcelain", "for-each-ref", "reflog", "worktree list", "stash list")
        files = sorted(str(p) for p in self.folder.rglob("*") if p.parent.name in ("", ".git"))
        return [git(self.folder, *each.split()) for each in words], files


def measure(clone, noise=0.0):
    """Read off a checkout what a bench of its kernel would measure."""
    text = (clone / "kernels" / "loss.py").read_text()
    if text == BROKEN:
        raise UnmeasurableError("does not run: invalid syntax")
    seconds, size = re.findall(r"= ([\d.]+), (\d+)", text)[0]
    ratio = float(seconds) / 0.05 * (1 + noise)
    return {
        "forward": Measured(
            result(median=0.05, peak_extra_bytes=2**20),
            result(median=float(seconds), peak_extra_bytes=int(size)),
            Change(ratio, ratio / 1.02, ratio * 1.02),
        )
    }


def search(repository, tmp_path, measure=measure, told=lambda text: None):
    span = Range.of(repository.folder, repository.commits[0], "HEAD")
    clone = span.clone(tmp_path / "clone", span.good)
    return Bisect(span, clone, measure, {"time": 0.05, "memory": 0.0}, told)


def found_by(searched, repository):
    """Return the numbers of the commits that are named, by figure."""
    return {
        culprit.regression.figure: [repository.commits.index(commit) for commit in culprit.commits]
        for culprit in searched.culprits()
    }


def test_slowdown_and_larger_memory_ten_commits_back_are_both_found(tmp_path):
    repository = Repository(tmp_path / "repository", 20, slow=10, large=8)
    searched = search(repository, tmp_path)
    assert found_by(searched, repository) == {"time": [10], "memory": [8]}
    assert len(searched.measured) < 10  # each of them once


def test_revision_that_does_not_build_is_skipped_and_named(tmp_path):
    repository = Repository(tmp_path / "repository", 12, slow=9, broken=(5, 6))
    told = []
    searched = search(repository, tmp_path, told=told.append)
    assert found_by(searched, repository) == {"time": [9]}
    assert set(searched.skipped.values()) == {"does not run: invalid syntax"}
    assert any("skipped, does not run: invalid syntax" in line for line in told)


def test_commits_before_the_first_bad_one_that_cannot_be_measured_are_named_with_it(tmp_path):
    repository = Repository(tmp_path / "repository", 9, slow=6, broken=(5,))
    searched = search(repository, tmp_path)
    assert {k: sorted(v) for k, v in found_by(searched, repository).items()} == {"time": [5, 6]}


def test_time_between_both_is_measured_again_and_its_median_decides(tmp_path):
    repository = Repository(tmp_path / "repository", 9, slow=5)
    # Of each commit the first measurement looks like the other side.
    seen: dict[str, int] = {}

    def noisy(clone):
        commit = git(clone, "rev-parse", "HEAD")
        seen[commit] = seen.get(commit, 0) + 1
        is_slow = repository.commits.index(commit) >= 5
        if commit == repository.commits[-1] or seen[commit] > 1:
            return measure(clone)
        return measure(clone, noise=-0.055 if is_slow else 0.055)

    assert found_by(search(repository, tmp_path, noisy), repository) == {"time": [5]}
    assert max(seen.values()) > 1


def test_a_revision_that_noise_leaves_open_is_skipped(tmp_path):
    repository = Repository(tmp_path / "repository", 5, slow=2)

    def noisy(clone):
        (measured,) = measure(clone).values()
        value = measured.ratio.value
        is_bad = git(clone, "rev-parse", "HEAD") == repository.commits[-1]
        wide = 1.01 if is_bad else 3.0
        return {
            "forward": replace_fields(measured, ratio=Change(value, value / wide, value * wide))
        }

    found = found_by(search(repository, tmp_path, noisy), repository)
    assert {figure: sorted(commits) for figure, commits in found.items()} == {"time": [1, 2, 3, 4]}


def test_bad_revision_whose_noise_hides_the_slowdown_is_measured_again(tmp_path):
    repository = Repository(tmp_path / "repository", 5, slow=2)
    calls = []

    def noisy(clone):
        (measured,) = measure(clone).values()
        value = measured.ratio.value
        calls.append(value)
        wide = Change(value, value / 1.15, value * 1.15)
        return {"forward": replace_fields(measured, ratio=wide)}

    assert found_by(search(repository, tmp_path, noisy), repository) == {"time": [2]}
    assert calls[:3] == [pytest.approx(1.1)] * 3  # the error of three is that of one over root 3


def test_bad_revision_that_is_not_worse_is_refused_with_its_figures(tmp_path):
    repository = Repository(tmp_path / "repository", 4)
    with pytest.raises(UsageError, match=r"not worse than --good: forward 1\.000 \(0\.980"):
        search(repository, tmp_path).culprits()


def test_bad_revision_that_cannot_be_measured_is_refused_with_the_reason(tmp_path):
    repository = Repository(tmp_path / "repository", 4, broken=(3,))
    with pytest.raises(UsageError, match="cannot be measured beside --good: does not run"):
        search(repository, tmp_path).culprits()


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("nonsense", "HEAD", "git has no revision 'nonsense'"),
        ("HEAD", "HEAD~2", "HEAD~2 does not descend from HEAD"),
        ("HEAD", "HEAD", "are the same commit"),
        ("--upload-pack=x", "HEAD", "git has no revision '--upload-pack=x'"),
    ],
)
def test_wrong_revisions_are_refused(tmp_path, capsys, monkeypatch, good, bad, told):
    monkeypatch.chdir(Repository(tmp_path / "repository", 4).folder)
    given = (f"--good={good}", f"--bad={bad}", "--impl", "kernels/loss.py")
    assert main.run(["bisect", "mse 8x8", *given]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("implementation", "told"),
    [
        ("kernels/loss.py@HEAD", "the revisions are those of --good and --bad"),
        ("nowhere/loss.py", "there is no directory 'nowhere'"),
        ("cusotm", "unknown implementation 'cusotm'. Did you mean 'custom'?"),
        ("/loss.py", "not a git repository"),
    ],
)
def test_wrong_implementations_are_refused(tmp_path, capsys, monkeypatch, implementation, told):
    monkeypatch.chdir(Repository(tmp_path / "repository", 2).folder)
    given = ("--good", "HEAD~1", "--bad", "HEAD", "--impl", implementation)
    assert main.run(["bisect", "mse 8x8", *given]) == 2
    assert told in capsys.readouterr().err


def test_losscli_without_its_repository_exits_4(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("losscli.machine.description.SOURCES", tmp_path)
    assert main.run(["bisect", "mse 8x8", "--good", "a", "--bad", "b"]) == 4
    assert "is no checkout of its repository" in capsys.readouterr().err


@pytest.mark.parametrize(
    "case",
    [
        case_of("mse", (1024, 1024)),
        case_of("huber", (8,), params={"delta": 0.5}, dtype="bfloat16", reduction="sum"),
        case_of("mse", (8, 8), distribution="normal", grad_output=0.5),
        case_of("cross_entropy", (64, 100)),
    ],
    ids=lambda case: case.name,
)
def test_name_of_a_case_is_read_as_its_config(config, case):
    loaded = load_config(config(json.dumps(config_of_case(case.name))), {})
    assert case in expand(loaded, "cpu")
    # The pass forward has no incoming gradient: it is that of the same case without one.
    assert {replace(each, grad_output=1.0) for each in expand(loaded, "cpu")} == {
        replace(case, grad_output=1.0)
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "unknown loss ''"),
        ("mes 8x8", "unknown loss 'mes'. Did you mean 'mse'?"),
        ("mse", "'mse' has no size"),
        ("mse 8x8 float31", "'float31' is no part of a case"),
        ("mse 8x8 9x9", "two values of one axis: '9x9'"),
        ("mse 1K..4K*2", "is several sizes"),
        ("huber gamma=1 8x8", "unknown parameter 'gamma'"),
    ],
)
def test_wrong_names_of_cases_are_refused(name, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        config_of_case(name)


def test_variables_of_bench_change_no_measurement(tmp_path, monkeypatch):
    given = {}

    def run(words, **options):
        given.update(options, words=words)
        return subprocess.CompletedProcess(words, 2, "", "losscli: error: no such thing.\n")

    monkeypatch.setattr("losscli.machine.commands.subprocess.run", run)
    monkeypatch.setenv("LOSSCLI_BENCH_SIZE", "9x9")
    with pytest.raises(UnmeasurableError, match=r"^does not run: no such thing\.$"):
        Bench({}, ["--device", "cpu"], tmp_path).run(tmp_path, "--impl", "x", sources=tmp_path)
    assert "LOSSCLI_BENCH_SIZE" not in given["env"]
    assert given["env"]["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path)
    assert given["words"][-6:-4] == ["--impl", "x"]


@pytest.mark.slow
def test_kernel_in_a_repository_of_its_own_is_bisected_from_the_command_line(
    tmp_path, capsys, monkeypatch
):
    repository = Repository(tmp_path / "repository", 14, slow=4, large=4, broken=(7,))
    monkeypatch.chdir(repository.folder)
    Path("number").write_text("changed and not committed")
    before = repository.state()
    given = ("--good", repository.commits[0], "--bad", "HEAD", "--impl", "kernels/loss.py")
    quick = ("--pass", "forward", "--device", "cpu", "--max-time", "1.5s", "--processes", "1")
    assert main.run(["bisect", "mse 64x64 float32 mean", *given, *quick, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["found"] == [
        {"figure": figure, "pass": "forward", "commits": [repository.commits[4]]}
        for figure in ("time", "memory")
    ]
    assert repository.state() == before
    assert Path("number").read_text() == "changed and not committed"
