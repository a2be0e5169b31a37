"""Where a run goes: each result to disk as it finishes, the report in the end."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TextIO

from losscli.errors import UnfitError
from losscli.report.render import header, json_line, render
from losscli.results import Result, Run


class Writer:
    """A context that gathers results and, however it ends, reports those that there are.

    With an output, ``OUTPUT.jsonl`` beside it is opened at once and takes each result the moment
    it is added; the report appears as a whole, by a rename. The JSONL file then goes if the report
    holds all that it does. Without an output the report goes to standard output.
    """

    def __init__(self, run: Run, format: str, output: Path | None) -> None:
        """``run`` has no results yet. UnfitError if nothing can be written beside ``output``."""
        self.run, self.format = run, format
        self.output = output.resolve() if output else None
        self.journal_path: Path | None = None
        self._journal: TextIO | None = None
        if self.output and self._is_replaceable(self.output):
            self.journal_path = self.output.with_name(f"{self.output.name}.jsonl")
            try:
                self._journal = self.journal_path.open("w", encoding="utf-8")
            except OSError as error:
                raise UnfitError(
                    f"cannot write {self.journal_path}: {error.strerror}. Choose another -o."
                ) from None
            self._append(json_line(header(run)))

    def __enter__(self) -> Writer:
        return self

    def add(self, result: Result) -> None:
        """Keep a result."""
        self.run = replace(self.run, results=(*self.run.results, result))
        self._append(json_line(result.to_json()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Report what there is; an error before the first result leaves nothing behind."""
        if self._journal:
            self._journal.close()
        if self.run.results or error is None:
            self._report(render(self.run, self.format))
        if self.journal_path and (self.format in ("json", "jsonl") or not self.run.results):
            self.journal_path.unlink()

    def _report(self, text: str) -> None:
        """Put the report where it goes."""
        if self.output is None:
            print(text)
        elif self._journal is None:
            self.output.write_text(f"{text}\n", encoding="utf-8")
        else:
            partial = self.output.with_name(f"{self.output.name}.partial")
            partial.write_text(f"{text}\n", encoding="utf-8")
            os.replace(partial, self.output)

    def _append(self, line: str) -> None:
        """Have a line on disk before anything else is measured."""
        if self._journal:
            self._journal.write(f"{line}\n")
            self._journal.flush()

    @staticmethod
    def _is_replaceable(output: Path) -> bool:
        """Tell a file from a pipe or a terminal such as /dev/stdout."""
        return output.is_file() or not output.exists()
