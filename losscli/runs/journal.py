"""The checkpoint next to an output: one line per result, flushed before the next measurement."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from losscli.errors import UnfitError, UsageError
from losscli.runs.encoding import json_line
from losscli.runs.files import is_replaceable, replace_file
from losscli.runs.records import Result, Run

_SUFFIX = ".journal.jsonl"


def journal_path(output: Path) -> Path:
    """Return the path of an output's journal."""
    return output.with_name(f"{output.name}{_SUFFIX}")


def output_of(path: Path) -> Path:
    """Return a journal's output; any other path is returned unchanged."""
    return path.with_name(path.name.removesuffix(_SUFFIX))


def journal_of(output: Path | None, saved: Path | None) -> tuple[Path, str] | None:
    """Return the output with a journal and, if the run is only saved, its name."""
    if output and is_replaceable(output):
        return output.resolve(), ""
    return (saved, saved.name.removesuffix(".jsonl")) if saved else None


class Journal:
    """The file that receives each result."""

    def __init__(
        self, run: Run, output: Path, resumed: Path | None = None, *, name: str = ""
    ) -> None:
        """Write the header of ``run``, as unfinished, and its results so far.

        Those come from the journal ``resumed``, which this one may replace. ``name`` is the run's
        name if it is only saved. UsageError if another run's unreported journal exists.
        """
        self.path = journal_path(output)
        refuse_unreported(run.kind, output, resumed, name)
        try:
            header = replace(run.header, unfinished=True)
            records = [header.to_json(), *(result.to_json() for result in run.results)]
            replace_file(self.path, map(json_line, records))
            self._file: TextIO = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise UnfitError(
                f"cannot write {self.path}: {error.strerror}. Choose another {_option(name)}."
            ) from None

    def add(self, result: Result) -> None:
        """Write a result to disk."""
        try:
            self._file.write(f"{json_line(result.to_json())}\n")
            self._file.flush()
        except OSError as error:
            raise UnfitError(
                f"cannot write {self.path}: {error.strerror}. The cases finished before are kept."
            ) from None

    def close(self) -> None:
        """Close the file; each line was flushed, and errors were reported."""
        with contextlib.suppress(OSError):
            self._file.close()


def refuse_unreported(kind: str, output: Path, resumed: Path | None = None, name: str = "") -> None:
    """Refuse to overwrite the journal of a run that was never written; see :class:`Journal`."""
    path = journal_path(output)
    if not path.exists() or (resumed and resumed.resolve() == path.resolve()):
        return
    reported = output.exists() and output.stat().st_mtime_ns >= path.stat().st_mtime_ns
    if not reported:
        known = name or output
        resume = f"Continue the run with --resume {known}, move" if kind == "bench" else "Move"
        raise UsageError(
            f"{path} holds the finished cases of a run that was killed. "
            f"{resume} the file away or choose another {_option(name)}."
        )


def _option(name: str) -> str:
    return "--save" if name else "-o"
