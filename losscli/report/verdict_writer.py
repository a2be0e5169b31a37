"""Writes verdicts as they come, or their report at the end, however the batch ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO

from losscli.errors import UnfitError, UsageError
from losscli.judge.verdict import Verdict
from losscli.report.terminal import show, width
from losscli.report.verdict_block import block, conclusion
from losscli.runs.encoding import finite, json_line
from losscli.runs.files import is_replaceable, replace_file

SCHEMA_VERSION = 1


class VerdictWriter:
    """A context that takes verdicts and writes them in a format.

    ``jsonl`` writes a line a verdict, each on disk before the next; ``table`` to standard output a
    block a verdict, and the closing table at the end; all else is written at the end, atomically.
    """

    def __init__(
        self,
        format: str,
        output: Path | None,
        *,
        earlier: Sequence[Verdict] = (),
        resumed: bool = False,
    ) -> None:
        """Open the output.

        Args:
            format: ``table``, ``json`` or ``jsonl``.
            output: None is standard output.
            earlier: verdicts that the output has already.
            resumed: whether to add to the output, not to begin it.

        Raises:
            UsageError: the output has verdicts, and is not to be continued.
            UnfitError: it cannot be written.
        """
        self.format, self.output = format, output
        self.verdicts = list(earlier)
        self._new = 0
        self._lines: IO[str] | None = None
        if output and format == "jsonl":
            self._lines = _open(output, resumed)

    def __enter__(self) -> VerdictWriter:
        return self

    def add(self, verdict: Verdict) -> None:
        """Write a verdict, or keep it for the report."""
        self.verdicts.append(verdict)
        self._new += 1
        if self.format == "jsonl":
            self._write_line(json_line(verdict.to_json()))
        elif self.format == "table" and self.output is None:
            show(f"{block(verdict, width())}\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write the report on the verdicts so far."""
        if self._lines:
            self._lines.close()
        if not self.verdicts or self.format == "jsonl":
            return
        if self.output is None:
            if self.format == "table":
                show(conclusion(self.verdicts))
            else:
                print(self._json())
            return
        text = self._json()
        if self.format == "table":
            text = "\n\n".join([*map(block, self.verdicts), conclusion(self.verdicts)])
        try:
            if is_replaceable(self.output):
                replace_file(self.output.resolve(), [text])
            else:
                self.output.write_text(f"{text}\n", encoding="utf-8")
        except BrokenPipeError:
            raise
        except OSError as error_:
            raise _unwritable(self.output, error_) from None

    def _write_line(self, text: str) -> None:
        """Write at once: whoever reads may be waiting for this verdict."""
        try:
            print(text, file=self._lines or sys.stdout, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            if self.output is None:
                raise
            raise _unwritable(self.output, error) from None

    def _json(self) -> str:
        record = {
            "schema_version": SCHEMA_VERSION,
            "kind": "judge",
            "command": ["losscli", *sys.argv[1:]],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
        }
        return json.dumps(finite(record), indent=2, allow_nan=False)


def _open(output: Path, resumed: bool) -> IO[str]:
    """Open an output of lines; refuse one that has some already."""
    if not resumed and is_replaceable(output) and output.exists() and output.stat().st_size:
        raise UsageError(
            f"{output} has verdicts already. Judge only the rest with --resume {output}, remove "
            "the file, or name another -o."
        )
    try:
        return output.open("a", encoding="utf-8")
    except OSError as error:
        raise _unwritable(output, error) from None


def _unwritable(output: Path, error: OSError) -> UnfitError:
    return UnfitError(f"cannot write {output}: {error.strerror}. Name another file.")
