"""Commits of git repositories, and files' content at them."""

import os
import subprocess
from pathlib import Path

from losscli.errors import UnfitError, UsageError
from losscli.machine.commands import first_line, run

SHOWN = 12


def commit_of(directory: Path) -> str | None:
    """Return a directory's commit, with ``+`` if files changed, or None."""
    git = ["git", "-C", str(directory)]
    head = first_line([*git, "rev-parse", f"--short={SHOWN}", "HEAD"])
    changed = head and first_line([*git, "status", "--porcelain", "--untracked-files=no"])
    return f"{head}+" if changed else head


def commit_of_file(path: Path, revision: str = "") -> str | None:
    """Return a file's commit, with ``+`` if it or others changed, or None."""
    folder = path.absolute().parent
    git = ["git", "-C", str(folder)]
    if revision:
        return first_line([*git, "rev-parse", f"--short={SHOWN}", f"{revision}^{{commit}}"])
    commit = commit_of(folder)
    if not commit or commit.endswith("+"):
        return commit
    untracked = first_line([*git, "status", "--porcelain", "--", path.name])
    return f"{commit}+" if untracked else commit


def content_at(path: Path, revision: str) -> bytes:
    """Return a file's content at a revision; UsageError if there is none."""
    command = ["git", "-C", str(path.absolute().parent), "show", f"{revision}:./{path.name}"]
    try:
        shown = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise UsageError(f"'{path}@{revision}' needs git, which is not installed.") from None
    if shown.returncode:
        why = shown.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UsageError(f"git has no '{path}' at '{revision}': {why}")
    return shown.stdout


def git(directory: Path, *arguments: str) -> str:
    """Run git without hooks or a caller's settings; UsageError if it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    command = ["git", "-C", str(directory), "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = run(command, env=environment | {"LC_ALL": "C"})
    except FileNotFoundError:
        raise UnfitError("git is not installed, and revisions cannot be read without it.") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).partition("\n")[0]
        raise UsageError(f"git {arguments[0]} in '{directory}': {said.removeprefix('fatal: ')}.")
    return done.stdout.rstrip("\n")
