"""Each file of candidates gets the verdict of its first line, and leaves nothing behind.

A candidate begins with ``# expect: WORD[|WORD] [code[,code]]: what it is``. A word is one of a
verdict, a code one of its reasons; alternatives are for what honestly may be noticed first. Lines
of options follow:

- ``# loss: NAME``: the loss whose oracle is the truth; smooth_l1 without the line;
- ``# reference: Model``: the truth is the file's own Model;
- ``# dtypes: NAME, NAME``: to be judged; float32 without the line;
- ``# limits: NAME=NUMBER ...``: limits that are smaller or larger than usual;
- ``# gpu``: needs CUDA;
- ``# slow``: judged by `make test-all` only.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from losscli.axes import DTYPES
from losscli.judge import device_lock
from losscli.judge.job import Job, Limits
from losscli.judge.parts import CODES, RIGHT_WORDS, Word
from losscli.judge.verdict import Verdict
from losscli.losses import EVERY_LOSS

PATHS = sorted((Path(__file__).parent / "candidates").glob("*.py"))
FIRST_LINE = re.compile(
    r"# expect: (?P<words>[A-Z]+(?:[ |][A-Z]+)*)"
    r"(?: (?P<codes>[a-z_]+(?:,[a-z_]+)*))?: (?P<what>\S.*)"
)
OPTION = re.compile(r"# (?P<name>gpu|slow|loss|reference|dtypes|limits)(?:: (?P<value>\S.*))?")
USUAL_LIMITS = {"build_seconds": 300.0, "call_seconds": 60.0, "total_seconds": 600.0}
OF_TIME = {"wrong_later", "clock_disagrees", "slower"}
"""Codes that only timing finds. Candidates of others are not timed, which takes seconds each."""
TIMED = {"honest_fused_cpp", "honest_model_new_cuda"}
NOT_A_CANDIDATES_FAULT = {
    *("bad_job", "no_gpu", "no_room", "quarantined", "interrupted", "error"),
}
WITHOUT_CANDIDATE = {
    "impossible",  # depends on the memory of the machine
    "slower",  # is no fault
    "no_worse_than_torch",
    "refuses",
}


@dataclass(frozen=True)
class Candidate:
    """A file, and what its first lines say of it."""

    path: Path
    words: tuple[str, ...]
    codes: tuple[str, ...]
    what: str
    options: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> Candidate:
        first, *others = path.read_text().splitlines()
        found = FIRST_LINE.fullmatch(first)
        assert found, f"{path}: the first line is {first!r}"
        options: dict[str, str] = {}
        for line in others:
            option = OPTION.fullmatch(line)
            if not option:
                break
            options[option["name"]] = option["value"] or ""
        codes = tuple(found["codes"].split(",")) if found["codes"] else ()
        return cls(path, tuple(found["words"].split("|")), codes, found["what"], options)

    @property
    def job(self) -> Job:
        """The job that ``losscli judge`` would have of the command line."""
        given = dict(each.split("=") for each in self.options.get("limits", "").split())
        limits: dict[str, Any] = USUAL_LIMITS | {
            name: int(value) if name.endswith("bytes") else float(value)
            for name, value in given.items()
        }
        dtypes: Any = tuple(filter(None, self.options.get("dtypes", "").split(", ")))
        return Job(
            file=str(self.path),
            loss="" if "reference" in self.options else self.options.get("loss", "smooth_l1"),
            device="cuda:0" if "gpu" in self.options else "cpu",
            dtypes=dtypes,
            quick=True,
            timed=bool(OF_TIME & {*self.codes}) or self.path.stem in TIMED,
            limits=Limits(**limits),
        )


def each_candidate() -> list[Any]:
    marks = {"gpu": pytest.mark.gpu, "slow": pytest.mark.slow}
    marked = {path: marks.keys() & Candidate.read(path).options for path in PATHS}
    return [
        pytest.param(path, id=path.stem, marks=[marks[name] for name in names])
        for path, names in marked.items()
    ]


@pytest.fixture(scope="module")
def zygote():
    """The process that forks workers: it stays for the next candidate."""
    from losscli.implementations.sandbox.process import zygote

    return zygote()


@pytest.fixture
def private(zygote, tmp_path, monkeypatch):
    """The folder in which a judge makes its temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    # How fast a candidate is decides nothing here, so none waits until another has been timed.
    monkeypatch.setattr(device_lock, "lock_path", lambda device, kind="lock": tmp_path / kind)
    return folder


def descendants() -> set[str]:
    """Return the processes below this one, zombies as well."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            _, parent, *_ = status.read_text().rpartition(")")[2].split()
            parents[status.parent.name] = parent
    known = {str(os.getpid())}
    while below := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= below
    return known


def told(candidate: Candidate, verdict: Verdict) -> str:
    """Describe a verdict that is not the expected one."""
    reasons = [f"  {r.stage}, {r.code}, {r.check} {r.case}: {r.text}" for r in verdict.reasons]
    expected = f"{' or '.join(candidate.words)} {' or '.join(candidate.codes)}".rstrip()
    return "\n".join(
        [
            f"{candidate.path.name}, {candidate.what}",
            f"expected {expected}, got {verdict.word}",
            *reasons,
            f"  after {verdict.seconds}",
            f"log: {verdict.log or 'empty'}",
        ]
    )


@pytest.mark.parametrize("path", each_candidate())
def test_candidate_gets_the_verdict_of_its_first_line_and_leaves_nothing(path, private):
    from losscli.implementations.sandbox.process import scratch_directory
    from losscli.judge.stages import judge_job

    candidate = Candidate.read(path)
    before = descendants()

    verdict = judge_job(candidate.job)

    codes = {reason.code for reason in verdict.reasons}
    assert verdict.word in candidate.words, told(candidate, verdict)
    assert not candidate.codes or codes & set(candidate.codes), told(candidate, verdict)
    assert descendants() == before
    assert list(private.iterdir()) == []
    assert list(scratch_directory().glob(f"{os.getpid()}-*")) == []


def test_words_codes_and_options_of_every_candidate_exist():
    for path in PATHS:
        candidate = Candidate.read(path)

        assert set(candidate.words) <= set(get_args(Word)), path
        assert set(candidate.codes) <= CODES, path
        assert candidate.options.get("loss", "smooth_l1") in EVERY_LOSS, path
        assert candidate.options.get("reference", "Model") == "Model", path
        assert set(candidate.job.dtypes) <= set(DTYPES), path


def test_every_candidate_that_is_not_right_has_a_reason():
    wrong = [each for each in map(Candidate.read, PATHS) if not set(each.words) <= {*RIGHT_WORDS}]
    assert [candidate.path for candidate in wrong if not candidate.codes] == []


def test_each_reason_that_a_candidate_can_give_has_a_candidate():
    expected = {code for path in PATHS for code in Candidate.read(path).codes}

    untold = CODES - NOT_A_CANDIDATES_FAULT - WITHOUT_CANDIDATE - expected
    assert not untold


def test_candidates_of_each_run_have_each_verdict_and_reason_that_needs_no_time_and_no_gpu():
    candidates = [each for each in map(Candidate.read, PATHS) if "gpu" not in each.options]
    chosen = [each for each in candidates if "slow" not in each.options]

    assert {word for each in chosen for word in each.words} == {*get_args(Word)}
    codes, found = ({code for each in of for code in each.codes} for of in (candidates, chosen))
    assert codes - found <= OF_TIME
