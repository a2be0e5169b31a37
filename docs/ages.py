"""Tells of each record which kernels have changed since the commit that it was measured at.

The kernels of a loss are the files of csrc that its library may include, as the build knows them;
those of hidden states are composed in Python, by the files of losscli/linear.
A file that was only moved has not changed; one that includes a moved file by its new name has.
"""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from losscli.build import targets
from losscli.losses import (
    EVERY_LOSS,
    LINEAR_LOSSES,
    LOSSES,
    ROW_LOSSES,
    WEIGHTED,
    operators_for,
)

ROOT = Path(__file__).parents[1]
CSRC = ROOT / "csrc"
RESULTS = ROOT / "docs" / "results"
_ROW = re.compile(r"^\| (?P<file>\S+\.json) \|.*\| (?P<commit>[0-9a-f]{7,40}) \|$", re.MULTILINE)
"""A record in the table of docs/results/README.md."""
COMPOSED = ("losscli/linear", "losscli/losses/linear/logits_plan.py")
"""What composes the losses of hidden states of kernels and matrix products."""
WIDTH = 100


class NoHistoryError(Exception):
    """Git does not know what has changed: no repository, or a clone without the old commits."""


@cache
def commits() -> dict[str, str]:
    """Return the commit that each record was measured at, by the name of its file.

    What was measured with uncommitted changes has the commit that these became.
    """
    return dict(_ROW.findall((RESULTS / "README.md").read_text()))


@cache
def changed_files(commit: str) -> frozenset[str]:
    """Return the files of kernels whose contents the commit does not have, by their names now.

    Those of csrc by their names there.

    Raises:
        NoHistoryError: git cannot tell.
    """
    command = ["git", "-C", str(ROOT), "diff", "--name-status", "--find-renames", commit]
    try:
        done = subprocess.run(
            [*command, "--", "csrc", *COMPOSED],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except FileNotFoundError:
        raise NoHistoryError("git is not installed") from None
    if done.returncode:
        raise NoHistoryError(done.stderr.strip().partition("\n")[0])
    found = set()
    for line in done.stdout.splitlines():
        status, *names = line.split("\t")
        if status not in ("D", "R100"):
            found.add(names[-1].removeprefix("csrc/"))
    return frozenset(found)


@cache
def files_of(loss: str, device: str) -> frozenset[str]:
    """Return the files from which the kernels of a loss are compiled, or composed."""
    libraries = [targets.Target(targets.LOSS, device, name) for name in operators_for(loss)]
    found = {file for each in libraries for file in targets.read_sources(CSRC, each)}
    if loss in LINEAR_LOSSES:
        for place in map(ROOT.joinpath, COMPOSED):
            paths = place.glob("*.py") if place.is_dir() else [place]
            found |= {path.relative_to(ROOT).as_posix() for path in paths}
    return frozenset(found)


def changed_losses(losses: Iterable[str], device: str, commit: str) -> list[str]:
    """Return the losses whose kernels are not those of a commit any more."""
    changed = changed_files(commit)
    return [loss for loss in dict.fromkeys(losses) if changed & files_of(loss, device)]


def losses_of(record: dict[str, Any]) -> list[str]:
    """Return the losses that a record speaks of; where it names none, those of each element."""
    cases = [result["case"] for result in record.get("results", ()) if "case" in result]
    if cases:
        return list(dict.fromkeys(case["loss"] for case in cases if case["loss"] in EVERY_LOSS))
    mutated = {result["file"] for result in record.get("results", ()) if "file" in result}
    of_rows = bool(mutated) and all("row" in file for file in mutated)
    return list(ROW_LOSSES if of_rows else LOSSES)


def device_of(environment: dict[str, Any]) -> str:
    """Return the type of the device that a record was measured on."""
    return targets.CUDA if environment.get("gpu") else targets.CPU


@cache
def of_record(file: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the losses that a record speaks of, and those of them whose kernels have changed."""
    record = json.loads((RESULTS / file).read_text())
    losses = losses_of(record)
    device = device_of(record["environment"])
    return tuple(losses), tuple(changed_losses(losses, device, commits()[file]))


def sentence(file: str, losses: Iterable[str], device: str) -> str:
    """Return at which commit figures were measured and which kernels changed since; or nothing."""
    every = list(dict.fromkeys(losses))
    changed = changed_losses(every, device, commits()[file])
    if not changed:
        return ""
    kernels = f"the kernels of {_told(changed, every)}"
    return textwrap.fill(f"Measured at {commits()[file]}, before changes to {kernels}.", WIDTH)


def table() -> str:
    """Return a row for each record: its commit, and the losses whose kernels changed since."""
    lines = ["| record | measured at | kernels changed since |", "| --- | --- | --- |"]
    for file, commit in commits().items():
        losses, changed = of_record(file)
        told = _told(changed, losses) if changed else "none"
        lines.append(f"| {file} | {commit} | {told} |")
    return "\n".join(lines)


def _told(changed: Iterable[str], every: Iterable[str]) -> str:
    changed, every = [*changed], [*every]
    if len(changed) == len(every):
        return "all its losses" if len(every) > 1 else every[0]
    for family, name in ((LOSSES, "elementwise losses"), (WEIGHTED, "losses with a weight")):
        members = [loss for loss in every if loss in family]
        if len(members) > 3 and {*members} <= {*changed}:
            rest = [loss for loss in changed if loss not in family]
            return " and ".join([f"all {name}", *([_told(rest, every)] if rest else [])])
    *others, last = changed
    return f"{', '.join(others)} and {last}" if others else last
