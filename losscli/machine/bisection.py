"""Searches commits with `git bisect`, in clones of its own: a user's checkout stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from losscli.errors import UsageError
from losscli.machine.commits import git, run_git

Mark = Literal["good", "bad", "skip"]


@dataclass(frozen=True)
class Range:
    """Two commits of a repository, the second of which descends from the first."""

    repository: Path
    good: str
    bad: str

    @classmethod
    def of(cls, repository: Path, good: str, bad: str) -> Range:
        """Find two revisions of a repository.

        Raises:
            UsageError: there is no such revision, or the second does not descend from the first.
        """
        first, second = (_commit(repository, revision) for revision in (good, bad))
        if first == second:
            raise UsageError(f"{good} and {bad} are the same commit. Name two.")
        if run_git(repository, "merge-base", "--is-ancestor", first, second).returncode:
            raise UsageError(f"{bad} does not descend from {good}. Name an earlier --good.")
        return cls(repository, first, second)

    def commits(self) -> list[str]:
        """Return the commits after the good one, the oldest first."""
        span = f"{self.good}..{self.bad}"
        return git(self.repository, "rev-list", "--reverse", "--topo-order", span).split()

    def subject(self, commit: str) -> str:
        """Return the first line of a commit's message."""
        return git(self.repository, "log", "-1", "--format=%s", commit)

    def clone(self, folder: Path, commit: str) -> Path:
        """Make a clone in a new folder that shares the repository's objects, at a commit."""
        git(self.repository, "clone", "-q", "--shared", "--no-checkout", ".", str(folder))
        check_out(folder, commit)
        return folder

    def first_bad(self, clone: Path, mark: Callable[[str], Mark]) -> list[str]:
        """Return the first bad commit; several where only skipped ones are left.

        Args:
            clone: is checked out at each commit that is marked.
            mark: judges a commit.
        """
        done = run_git(clone, "bisect", "start", self.bad, self.good)
        while not (found := _found(done.stdout)):
            if done.returncode:
                raise UsageError(f"git bisect: {(done.stderr or done.stdout).strip()}")
            commit = git(clone, "rev-parse", "HEAD")
            done = run_git(clone, "bisect", mark(commit))
        run_git(clone, "bisect", "reset")
        return found


def check_out(clone: Path, commit: str) -> None:
    """Have a clone at a commit, without what was left by another."""
    git(clone, "checkout", "-q", "--force", "--detach", commit)
    git(clone, "clean", "-qffdx")


def _found(said: str) -> list[str]:
    """Return the commits that git bisect names at its end; none before."""
    if "could be any of:" in said:
        return re.findall(r"^([0-9a-f]{40})$", said, re.MULTILINE)
    return re.findall(r"^([0-9a-f]{40}) is the first bad commit$", said, re.MULTILINE)


def _commit(repository: Path, revision: str) -> str:
    words = ("rev-parse", "--verify", "-q", "--end-of-options", f"{revision}^{{commit}}")
    done = run_git(repository, *words)
    if done.returncode:
        raise UsageError(f"git has no revision '{revision}' in '{repository}'.")
    return done.stdout.strip()
