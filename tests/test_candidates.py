"""Each file of candidates gets the verdict of its first line, and leaves nothing behind.

What these lines are, ``losscli/judge/selftest.py`` says.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any, get_args

import pytest

from losscli.cases.axes import DTYPES
from losscli.judge import device_lock
from losscli.judge.selftest import (
    LEGITIMATE,
    OF_TIME,
    Candidate,
    candidates,
    changed,
    counted,
    judged_files,
    root,
)
from losscli.judge.verdict import Verdict
from losscli.judge.verdict_parts import RIGHT_WORDS, JudgeReason
from losscli.losses import EVERY_LOSS
from losscli.processes.lock import LOCK
from losscli.reasons import CODES, Code, Word
from tests.parameters import SLOW

PATHS = sorted(root().glob("*.py"))
NOT_A_CANDIDATES_FAULT = {
    *(
        "bad_job",
        "missing_tool",
        "unknown_loss",
        "no_gpu",
        "insufficient_memory",
        "device_unhealthy",
        "not_isolated",
        "interrupted",
        "busy",
    ),
    "error",
}
EACH_RUN = (
    *("allocates_without_end", "changes_flags_when_imported", "defines_two_functions"),
    *("does_not_build", "exits_silently", "floods_stdout", "forks_and_both_answer"),
    *("hangs_with_the_interpreter", "legitimate_hinge", "leaves_a_child"),
    *("leaves_files", "model_new_without_backward", "patches_clock", "raises"),
    *(
        "raises_when_constructed",
        "raises_when_imported",
        "reference_raises",
        "returns_float64",
        "returns_view_of_input",
    ),
    *("right_in_the_process_of_a_judge", "syntax_error", "takes_one_argument"),
    *("thread_returns_at_once", "writes_verdicts"),
)
"""Candidates of each verdict and reason; those of `make test-all` are the others."""
WITHOUT_CANDIDATE = {
    "modified_input",  # of copies as well, which no file did
    "impossible",  # depends on the memory of the machine
    "interference",  # what it gains differs from run to run: tests/test_judge_beside.py
    "slower",  # is no fault
    "same_error_as_pytorch",
    "unsupported_input",
    "no_own_kernel",  # is asked for: tests/test_judge_strangers.py
}


def each_candidate() -> list[Any]:
    def marks(path: Path) -> list[Any]:
        if Candidate.read(path).needs_gpu:
            return [pytest.mark.gpu]
        return [] if path.stem in EACH_RUN else [SLOW]

    return [pytest.param(path, id=path.stem, marks=marks(path)) for path in PATHS]


@pytest.fixture(scope="module")
def zygote():
    """The process that forks workers: it stays for the next candidate."""
    from losscli.implementations.sandbox.zygote import running

    return running()


@pytest.fixture
def private(zygote, tmp_path, monkeypatch):
    """The folder in which a judge makes its temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    # PyTorch's own, made where a second derivative of a norm imports what torch.compile needs.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
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
    from losscli.implementations.sandbox.scratch import scratch_directory
    from losscli.judge.judging import judge_job

    candidate = Candidate.read(path)
    if candidate.missing:
        pytest.skip(f"{candidate.missing} is not installed")
    before = descendants()
    verdict = judge_job(candidate.job())
    assert candidate.is_due(verdict), told(candidate, verdict)
    assert descendants() == before
    assert list(private.iterdir()) == []
    assert [path.name for path in scratch_directory().iterdir()] == [LOCK]


def test_words_codes_and_options_of_every_candidate_exist():
    for path in PATHS:
        candidate = Candidate.read(path)
        assert set(candidate.words) <= set(get_args(Word)), path
        assert set(candidate.codes) <= CODES, path
        assert candidate.options.get("loss", "smooth_l1") in EVERY_LOSS, path
        assert candidate.options.get("reference", "Model") == "Model", path
        assert set(candidate.job().dtypes) <= set(DTYPES), path


def test_a_change_with_an_unknown_key_is_refused():
    text = "bases: {a: BODY}\na: {f: {expect: 'RIGHT: a', bdy: pass}}\n"
    with pytest.raises(ValueError, match="bdy: no such key"):
        changed(text)


def test_every_candidate_that_is_not_right_has_a_reason():
    wrong = [each for each in map(Candidate.read, PATHS) if not set(each.words) <= {*RIGHT_WORDS}]
    assert [candidate.path for candidate in wrong if not candidate.codes] == []


def test_each_reason_that_a_candidate_can_give_has_a_candidate():
    expected = {code for path in PATHS for code in Candidate.read(path).codes}
    untold = CODES - NOT_A_CANDIDATES_FAULT - WITHOUT_CANDIDATE - expected
    assert not untold


def test_candidates_of_each_run_have_each_verdict_and_reason_that_needs_no_time_and_no_gpu():
    candidates = [each for each in map(Candidate.read, PATHS) if not each.needs_gpu]
    chosen = [each for each in candidates if each.path.stem in EACH_RUN]
    assert len(chosen) == len(EACH_RUN)
    words = {word for each in chosen for word in each.words}
    assert words == {*get_args(Word)} - {"NO KERNEL OF ITS OWN"}
    codes, found = ({code for each in of for code in each.codes} for of in (candidates, chosen))
    assert codes - found <= OF_TIME | WITHOUT_CANDIDATE


def verdict_of(candidate: Candidate, word: Any, *codes: str) -> Verdict:
    reasons = tuple(JudgeReason(Code[code.upper()], "checks", "a reason") for code in codes)
    return Verdict("", str(candidate.path), word, "smooth_l1", "cpu", reasons)


def test_the_self_test_counts_by_kind_what_got_the_verdict_that_is_due():
    legitimate, forges, hangs = (
        Candidate.read(root() / f"{name}.py")
        for name in ("legitimate_torch", "patches_clock", "hangs")
    )
    judged = [
        verdict_of(legitimate, "WRONG", "wrong"),
        verdict_of(forges, "CHEATS", "monkey_patched"),
        verdict_of(hangs, "HANGS", "timeout"),
    ]
    found = list(judged_files(judged, [legitimate, forges, hangs]))
    assert [each.as_expected for each in found] == [False, True, True]
    assert counted(found) == {
        LEGITIMATE: (1, 0, 1),
        "functions replaced, results faked": (1, 1, 1),
        "ends, hangs or takes too much": (1, 1, 1),
    }


def test_a_file_that_this_machine_cannot_judge_is_not_a_wrong_verdict():
    candidate = Candidate.read(root() / "patches_clock.py")
    judged = [
        verdict_of(candidate, "NOT JUDGED", "insufficient_memory"),
        verdict_of(candidate, "NOT JUDGED", "error"),
        verdict_of(candidate, "CHEATS", "monkey_patched"),
    ]
    assert [each.exit_code for each in judged_files(judged, [candidate])] == [4, 1, 0]


def test_a_right_word_for_another_reason_is_not_what_is_due():
    candidate = Candidate.read(root() / "patches_clock.py")
    assert not candidate.is_due(verdict_of(candidate, "CHEATS", "wrote_to_channel"))


def test_every_candidate_has_a_kind_and_those_of_a_gpu_are_judged_there_alone():
    assert all(Candidate.read(path).kind for path in PATHS)
    names = {device: {each.path for each in candidates(device)} for device in ("cpu", "cuda:0")}
    installed = {path for path in PATHS if not Candidate.read(path).missing}
    assert names["cuda:0"] == installed > names["cpu"]
