"""Measures revisions of a repository by `losscli bench`, each beside a good one.

A file is timed side by side with its good revision, in the same rounds of the same processes. Two
revisions of losscli cannot be in one process: they are timed one right after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from losscli.compare.change import Change
from losscli.compare.comparison import compare
from losscli.errors import EXIT_BUILD, EXIT_INTERRUPTED, EXIT_UNFIT, UnfitError
from losscli.machine.commands import run_losscli
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult, Run


class UnmeasurableError(Exception):
    """A revision that does not build, is wrong or does not run; the message says why."""


@dataclass(frozen=True)
class Measured:
    """A pass of a revision beside the same of the good one."""

    good: BenchResult
    result: BenchResult
    ratio: Change
    """The time over that of the good one."""


By = Mapping[str, Measured]
"""What was measured of a revision, by pass."""


@dataclass(frozen=True)
class Bench:
    """Runs `losscli bench` on one case."""

    config: Mapping[str, Any]
    """The keys of the case's config."""
    options: Sequence[str]
    """Further options, such as the device."""
    folder: Path
    """Where the config and the records are."""

    def require_fit(self, implementation: str) -> None:
        """Refuse a case that no revision could run here, before one is checked out and built.

        Raises:
            UnfitError: it does not fit the memory, or there is no such device.
        """
        done = self._losscli(self.folder, ["--impl", implementation, "--dry-run"])
        if done.returncode == EXIT_UNFIT:
            raise UnfitError(_error(done))

    def run(self, where: Path, *options: str, sources: Path | None = None) -> Run:
        """Return the run of a command in a directory; ``sources`` are those of its losscli.

        Raises:
            UnmeasurableError: nothing was timed.
            KeyboardInterrupt: it was interrupted.
        """
        record = self.folder / "record.json"
        record.unlink(missing_ok=True)
        words = [*options, "--format", "json", "-o", str(record)]
        done = self._losscli(where, words, sources)
        if done.returncode == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if not record.exists():
            builds = "does not build" if done.returncode == EXIT_BUILD else "does not run"
            raise UnmeasurableError(f"{builds}: {_error(done)}")
        return read_run(record, "bench")

    def _losscli(
        self, where: Path, options: Sequence[str], sources: Path | None = None
    ) -> CompletedProcess[str]:
        config = self.folder / "case.yaml"
        config.write_text(json.dumps(self.config), encoding="utf-8")
        # Options of the user's bench are in its variables: here they would change the case.
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("LOSSCLI_BENCH_") and key != "GITHUB_STEP_SUMMARY"
        }
        if sources:
            path = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = os.pathsep.join(map(str, [sources, *filter(None, [path])]))
        words = ["bench", "-c", str(config), "--quiet", *self.options, *options]
        return run_losscli(words, environment, where)


def _error(done: CompletedProcess[str]) -> str:
    """Return the message of a command that failed."""
    told = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    why = (told or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0]
    return why.removeprefix("losscli: error: ")


@dataclass(frozen=True)
class FileRevisions:
    """A file of a repository; ``good`` is a checkout of its good revision."""

    bench: Bench
    good: Path
    path: Path
    """The path inside the repository."""
    name: str
    """What follows the path: nothing, or ``:NAME``."""

    def measure(self, clone: Path) -> By:
        """Measure the file of a checkout beside the good one."""
        if not (clone / self.path).is_file():
            raise UnmeasurableError(f"there is no {self.path}")
        good, other = (f"{folder / self.path}{self.name}" for folder in (self.good, clone))
        # In a folder without modules: each file imports those that lie beside it.
        run = self.bench.run(self.bench.folder, "--impl", f"{good},{other}")
        before, after = _by_pass(run, good), _by_pass(run, other)
        found = {}
        for pass_, result in after.items():
            ratio = result.ratios[good]
            change = Change(1 / ratio.value, 1 / ratio.high, 1 / ratio.low)
            found[pass_] = Measured(before[pass_], result, change)
        return found


@dataclass(frozen=True)
class OwnRevisions:
    """losscli itself; ``good`` is a checkout of its good revision."""

    bench: Bench
    good: Path
    implementation: str

    def measure(self, clone: Path) -> By:
        """Measure the losscli of a checkout right after that of the good one.

        The good one is measured each time, because a machine's speed changes within minutes.
        """
        before, after = (self._run(checkout) for checkout in (self.good, clone))
        for run in (before, after):
            _by_pass(run, self.implementation)
        rows = compare(before, after).rows
        return {
            row.after.pass_: Measured(row.before, row.after, row.ratio)
            for row in rows
            if row.after.implementation == self.implementation
        }

    def _run(self, clone: Path) -> Run:
        names = dict.fromkeys((self.implementation, "reference", "functional"))
        return self.bench.run(clone, "--impl", ",".join(names), sources=clone)


def _by_pass(run: Run, implementation: str) -> dict[str, BenchResult]:
    """Return the results of an implementation; UnmeasurableError where one has no time."""
    found = [r for r in run.of(BenchResult) if r.implementation == implementation]
    for result in found:
        if result.seconds is None:
            raise UnmeasurableError(f"{result.status}: {result.reason}")
    return {result.pass_: result for result in found}
