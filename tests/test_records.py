"""The records of docs/results, and which of them are older than the kernels that they speak of.

The documents have to say so beside the figures; ``python docs/tables.py`` writes it.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

from docs import ages, tables, times
from losscli.build import targets
from losscli.losses import LOSSES, ROW_FORMS, ROW_LOSSES
from tests.documents import RESULTS, ROOT
from tests.parameters import naming

FILES = sorted(path.name for path in RESULTS.glob("*.json"))
MARKED = re.compile(r"<!-- (\w+): (\S+\.json)[^>]* -->\n\n(.*?)<!-- end -->", re.DOTALL)


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def _history() -> None:
    """Skip where git does not know what has changed: in an sdist, or a shallow clone."""
    try:
        for commit in ages.commits().values():
            ages.changed_files(commit)
    except ages.NoHistoryError as error:
        pytest.skip(f"which records are older than the kernels is not known: {error}")


def test_table_of_records_has_each_file_once() -> None:
    assert sorted(ages.commits()) == FILES
    rows = re.findall(r"^\| (\S+\.json) \|.*`", (RESULTS / "README.md").read_text(), re.MULTILINE)
    assert sorted(set(rows)) == sorted(rows)


@pytest.mark.usefixtures("_history")
def test_commit_in_the_table_is_that_of_the_record() -> None:
    """What had uncommitted changes, ``+``, has the commit that these became, which is later."""
    for file in FILES:
        told = ages.commits()[file]
        own = json.loads((RESULTS / file).read_text())["environment"].get("commit", "")
        with naming(file):
            assert own.endswith("+") or own.startswith(told) or not own
            if own.endswith("+"):
                assert git("merge-base", "--is-ancestor", own.rstrip("+"), told).returncode == 0
            assert git("merge-base", "--is-ancestor", told, "HEAD").returncode == 0


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize("file", FILES)
def test_record_older_than_its_kernels_is_named_in_each_document_that_shows_it(file: str) -> None:
    losses, changed = ages.of_record(file)
    row = next(
        line
        for line in ages.table().splitlines()
        if line.startswith(f"| {file} | {ages.commits()[file]} |")
    )
    assert row in (RESULTS / "README.md").read_text()
    assert row.endswith("| none |") is (not changed)
    for document in tables.DOCUMENTS:
        for kind, shown, text in MARKED.findall(document.read_text()):
            if shown != file or kind == times.environment.__name__:
                continue
            is_told = f"Measured at {ages.commits()[file]}, before changes" in text
            # Where some have changed, a table may be of others; test_docs makes each anew.
            if len(changed) in (0, len(losses)):
                assert is_told is bool(changed)


def test_kernels_of_a_loss_are_the_files_that_its_library_may_include() -> None:
    for loss in (*LOSSES, *ROW_LOSSES):
        for device in targets.DEVICES:
            files = ages.files_of(loss, device)
            assert f"losses/{'rows' if loss in ROW_LOSSES else 'elementwise'}/loss.h" in files
            assert not any(file.startswith(("torch/", "bench/")) for file in files)
    for form in ROW_FORMS:
        assert ages.files_of(form, targets.CUDA)
    assert ages.files_of("masked_kl_divergence", "cpu") == ages.files_of("kl_divergence", "cpu")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two losses of elements and one of rows, with what they share."""
    for folder in ("elementwise", "rows"):
        (tmp_path / "csrc" / "losses" / folder).mkdir(parents=True)
    for name in ("elementwise/loss.h", "elementwise/mse.h", "elementwise/hinge.h", "rows/nll.h"):
        (tmp_path / "csrc" / "losses" / name).write_text("".join(f"{name} {n}\n" for n in range(9)))
    monkeypatch.setattr(ages, "ROOT", tmp_path)
    monkeypatch.setattr(ages, "CSRC", tmp_path / "csrc")
    for function in (ages.changed_files, ages.files_of):
        monkeypatch.setattr(ages, function.__name__, function.__wrapped__)
    return tmp_path


def commit(repository: Path) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "all")):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True)
    command = ["git", "-C", str(repository), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


EVERY = ["mse", "hinge", "nll"]


def test_edit_makes_the_losses_stale_that_include_the_file(repository: Path) -> None:
    losses = repository / "csrc" / "losses"
    for edited, stale in (
        ("elementwise/mse.h", ["mse"]),
        ("elementwise/loss.h", ["mse", "hinge"]),
        ("rows/nll.h", ["nll"]),
        ("rows/unused.h", []),
    ):
        at = commit(repository)
        assert ages.changed_losses(EVERY, "cpu", at) == []
        with (losses / edited).open("a") as file:
            file.write("edited\n")
        assert ages.changed_losses(EVERY, "cpu", at) == stale
    # What was only moved has not changed.
    (losses / "rows" / "nll.h").rename(losses / "rows" / "old.h")
    at = commit(repository)
    (losses / "rows" / "old.h").rename(losses / "rows" / "nll.h")
    commit(repository)
    assert ages.changed_losses(["nll"], "cpu", at) == []


def test_sentence_names_what_has_changed(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = commit(repository)
    monkeypatch.setattr(ages, "commits", lambda: {"some.json": at})
    assert ages.sentence("some.json", EVERY, "cpu") == ""
    told = f"Measured at {at}, before changes to the kernels of"
    for file, names in (
        ("elementwise/mse.h", "mse"),
        ("rows/nll.h", "mse and nll"),
        ("elementwise/loss.h", "all its losses"),
    ):
        (repository / "csrc" / "losses" / file).write_text("other")
        assert ages.sentence("some.json", EVERY, "cpu") == f"{told} {names}."


def test_unknown_commit_and_folder_without_a_repository_are_no_history(repository: Path) -> None:
    with pytest.raises(ages.NoHistoryError):
        ages.changed_files("HEAD")
    commit(repository)
    with pytest.raises(ages.NoHistoryError):
        ages.changed_files("0123456789ab")
