"""Write verdicts as they come, or their report at the end, however the batch ends."""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from losscli.console.streams import emit
from losscli.errors import UsageError, writing
from losscli.files.record import Record, now
from losscli.judge.verdict import Verdict
from losscli.render.output import show, width, write_report
from losscli.report.verdict_block import block, conclusion
from losscli.runs.encoding import finite, json_line
from losscli.runs.journal import kept
from losscli.runs.records import SCHEMA_VERSION


class Verdicts(Record, frozen=True, kw_only=True):
    """The record of a judge."""

    schema_version: int = SCHEMA_VERSION
    kind: str = "judge"
    command: tuple[str, ...] = ()
    created: str = ""
    verdicts: tuple[Verdict, ...]


class VerdictWriter:
    """A context that takes verdicts and writes them in a format.

    ``jsonl``, and ``table`` on standard output, are written one by one, the rest at the end.
    """

    def __init__(
        self,
        format: str,
        output: Path | None,
        *,
        earlier: Sequence[Verdict] = (),
        resumed: bool = False,
    ) -> None:
        """Open the output, None for standard output; a UsageError if it would be overwritten."""
        self.format, self.output = format, output
        self.verdicts = list(earlier)
        self._unwritten = False
        self._lines: IO[str] | None = None
        if output and format == "jsonl":
            if not resumed and os.path.isfile(output) and output.stat().st_size:
                raise UsageError(
                    f"{output} has verdicts already. Judge only the rest with --resume {output}, "
                    "remove the file, or name another -o."
                )
            with writing(output):
                self._lines = output.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def add(self, verdict: Verdict) -> None:
        """Write a verdict, or keep it for the report."""
        self.verdicts.append(verdict)
        self._unwritten = True
        if self.format == "jsonl":
            # At once: the reader may wait for this verdict.
            text = json_line(verdict.to_json())
            if self._lines and self.output:
                with writing(self.output):
                    print(text, file=self._lines, flush=True)
            else:
                emit(text)
        elif self.format == "table" and self.output is None:
            show(f"{block(verdict, width())}\n")
        self._unwritten = False

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._lines:
            with contextlib.suppress(OSError):  # each line was flushed, or its error told
                self._lines.close()
        failed = error if self._unwritten else None
        if self.verdicts and (failed or self.format != "jsonl"):
            lines = (json_line(verdict.to_json()) for verdict in self.verdicts)
            with kept("judge", lambda: "\n".join(lines)):
                if failed:
                    raise failed
                write_report(self._report(), self.format, self.output)

    def _report(self) -> str:
        if self.format == "json":
            command, verdicts = ("losscli", *sys.argv[1:]), tuple(self.verdicts)
            record = Verdicts(command=command, created=now(), verdicts=verdicts)
            return json.dumps(finite(record.to_json()), indent=2, allow_nan=False)
        if self.output:
            return "\n\n".join([*map(block, self.verdicts), conclusion(self.verdicts)])
        return conclusion(self.verdicts)  # the blocks are written already
