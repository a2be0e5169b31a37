"""The journal beside an output: a line per result, on disk before the next is measured."""

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
    """Return where the journal of an output is."""
    return output.with_name(f"{output.name}{_SUFFIX}")


def output_of(path: Path) -> Path:
    """Return the output of a journal; another path is an output itself."""
    return path.with_name(path.name.removesuffix(_SUFFIX))


def journal_of(output: Path | None, saved: Path | None) -> tuple[Path, str] | None:
    """Return the output that a run has a journal beside, and the run's name if it has no other."""
    if output and is_replaceable(output):
        return output.resolve(), ""
    return (saved, saved.name.removesuffix(".jsonl")) if saved else None


class Journal:
    """The file that takes each result when it is ready."""

    def __init__(
        self, run: Run, output: Path, resumed: Path | None = None, *, name: str = ""
    ) -> None:
        """Begin with the header of ``run``, as unfinished, and the results that it has already.

        These are from the journal ``resumed``, which may be in the place of this. ``name`` is that
        by which the run is saved, where nothing but that was asked for.

        Raises:
            UsageError: there is the journal of another run, one that was never reported.
            UnfitError: nothing can be written beside ``output``.
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
        """Write a result to disk before anything else is measured."""
        try:
            self._file.write(f"{json_line(result.to_json())}\n")
            self._file.flush()
        except OSError as error:
            raise UnfitError(
                f"cannot write {self.path}: {error.strerror}. The cases finished before are kept."
            ) from None

    def close(self) -> None:
        """Close the file; each line was flushed, and what could not be written was told."""
        with contextlib.suppress(OSError):
            self._file.close()


def refuse_unreported(kind: str, output: Path, resumed: Path | None = None, name: str = "") -> None:
    """Refuse to overwrite the journal of a run of a kind whose output was never written.

    See :class:`Journal` for the other arguments.
    """
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
    """Return the option that had a run written: by a name or a path."""
    return "--save" if name else "-o"
