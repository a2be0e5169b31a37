"""Where a run goes: each result to disk as it finishes, the report in the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TextIO

from losscli.errors import UnfitError, UsageError
from losscli.report.render import header, json_line, render
from losscli.results import Result, Run


class Writer:
    """A context that gathers results and, however it ends, reports those that there are.

    With an output, a journal beside it, ``OUTPUT.journal.jsonl``, is made at once and takes each
    result the moment it is added; the report appears as a whole, by a rename. The journal then goes
    if the report holds all that it does. Without an output the report goes to standard output.
    Without a result there is no report, and an old one stays.
    """

    def __init__(self, run: Run, format: str, output: Path | None) -> None:
        """``run`` has no results yet.

        Raises:
            UsageError: there is a journal whose run was never reported.
            UnfitError: nothing can be written beside ``output``.
        """
        self.format, self.output = format, output
        self._run = run
        self._results: list[Result] = []
        self.journal_path: Path | None = None
        self._journal: TextIO | None = None
        if output and _is_replaceable(output):
            self.output = output = output.resolve()
            self.journal_path = output.with_name(f"{output.name}.journal.jsonl")
            self._journal = _create(self.journal_path, output)
            self._append(json_line(header(run)))

    def __enter__(self) -> Writer:
        return self

    @property
    def run(self) -> Run:
        """The run with the results that there are."""
        return replace(self._run, results=tuple(self._results))

    def add(self, result: Result) -> None:
        """Keep a result."""
        self._results.append(result)
        self._append(json_line(result.to_json()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Report what there is."""
        if self._journal:
            # Each line was flushed; what cannot be written now was refused before.
            with contextlib.suppress(OSError):
                self._journal.close()
        if self._results:
            self._report(render(self.run, self.format))
        if self.journal_path and (self.format in ("json", "jsonl") or not self._results):
            self.journal_path.unlink()

    def _report(self, text: str) -> None:
        """Put the report where it goes."""
        if self.output is None:
            print(text)
            return
        try:
            if self.journal_path:
                _replace(self.output, f"{text}\n", like=self.journal_path)
            else:
                self.output.write_text(f"{text}\n", encoding="utf-8")
        except BrokenPipeError:
            raise
        except OSError as error:
            kept = f" {self.journal_path} holds the finished cases." if self.journal_path else ""
            raise UnfitError(f"cannot write {self.output}: {error.strerror}.{kept}") from None

    def _append(self, line: str) -> None:
        """Have a line on disk before anything else is measured."""
        if self._journal is None:
            return
        try:
            self._journal.write(f"{line}\n")
            self._journal.flush()
        except OSError as error:
            raise UnfitError(
                f"cannot write {self.journal_path}: {error.strerror}. "
                "The cases finished before are kept."
            ) from None


def _is_replaceable(output: Path) -> bool:
    """Tell a file from a pipe or a terminal; to be asked of a path with its links.

    What /dev/stdout links to has no name where it is a pipe.
    """
    return output.is_file() or not output.exists()


def _create(path: Path, output: Path) -> TextIO:
    """Open a journal, in place of one whose run was reported."""
    try:
        if path.exists():
            reported = output.exists() and output.stat().st_mtime_ns >= path.stat().st_mtime_ns
            if not reported:
                raise UsageError(
                    f"{path} holds the finished cases of a run that was killed. "
                    "Move it away or choose another -o."
                )
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise UnfitError(f"cannot write {path}: {error.strerror}. Choose another -o.") from None


def _replace(output: Path, text: str, *, like: Path) -> None:
    """Put a text in place of a file at once, with its permissions, or those of ``like``."""
    mode = output if output.exists() else like
    handle, partial = tempfile.mkstemp(prefix=f"{output.name}.", dir=output.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        shutil.copymode(mode, partial)
        os.replace(partial, output)
    except BaseException:
        os.unlink(partial)
        raise
