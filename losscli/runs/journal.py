"""Keep results on disk: the checkpoint next to an output, --resume, and reports being printed."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from losscli.console.streams import tell
from losscli.errors import UnfitError, UsageError, writing
from losscli.files.directories import user_directory
from losscli.machine.differences import Difference, differences, parts_ways
from losscli.runs.encoding import json_line
from losscli.runs.files import is_replaceable, refuse_held, replace_file, write_file
from losscli.runs.reading import read_run
from losscli.runs.records import Result, Run
from losscli.runs.saved import JOURNAL, SUFFIX, VARIABLE, find_run, is_there, runs_directory


def journal_path(output: Path) -> Path:
    """Return the path of an output's journal."""
    return output.with_name(f"{output.name}{JOURNAL}")


def output_of(path: Path) -> Path:
    """Return a journal's output; any other path is returned unchanged."""
    return path.with_name(path.name.removesuffix(JOURNAL))


def journal_of(output: Path | None, saved: Path | None) -> tuple[Path, str] | None:
    """Return the output with a journal and, if the run is only saved, its name."""
    if output and is_replaceable(output):
        return output.resolve(), ""
    return (saved, saved.stem) if saved else None


class Journal:
    """The file that receives each result."""

    def __init__(self, run: Run, output: Path, name: str) -> None:
        """Write the header of ``run`` and its results so far, as unfinished; see `journal_of`."""
        self.path = journal_path(output)
        with writing(self.path, f"Choose another {_option(name)}."):
            header = replace(run, unfinished=True).to_json()
            records = [header, *header.pop("results")]
            replace_file(self.path, (f"{json_line(record)}\n".encode() for record in records))
            self._file: TextIO = self.path.open("a", encoding="utf-8")

    def add(self, result: Result) -> None:
        """Write a result to disk."""
        with writing(self.path, "The cases finished before are kept."):
            self._file.write(f"{json_line(result.to_json())}\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file; each line was flushed, and errors were reported."""
        with contextlib.suppress(OSError):
            self._file.close()


def refuse_unreported(kind: str, output: Path, name: str, resumed: Path | None = None) -> None:
    """Refuse to overwrite the journal of a run that was never written, unless it is resumed."""
    path = journal_path(output)
    if not path.exists() or (resumed and resumed.resolve() == path.resolve()):
        return
    if not output.exists() or output.stat().st_mtime_ns < path.stat().st_mtime_ns:
        known = name or output
        resume = f"Continue the run with --resume {known}, move" if kind == "bench" else "Move"
        said = f"{path} holds the finished cases of a run that was killed."
        raise UsageError(f"{said} {resume} the file away or choose another {_option(name)}.")


def _option(name: str) -> str:
    return "--save" if name else "-o"


def find_unfinished(name: str) -> Path:
    """Return the file to resume from: the journal, which has more results, or the report."""
    journals = map(journal_path, (Path(name), runs_directory() / f"{name}{SUFFIX}"))
    path = next(filter(is_there, journals), None) if name else None
    try:
        path = path or find_run(name)
    except UsageError as error:
        killed = "A run that was killed before it was saved is found by the path of its -o"
        raise UsageError(f"{error} {killed}: --resume PATH.") from None
    refuse_held(output_of(path).resolve())
    return path


def read_unfinished(path: Path, run: Run, *, host: bool) -> tuple[Run, list[Difference]]:
    """Return an unfinished run and what changed since; UsageError if ``run`` measures another."""
    before = read_run(path, "bench")
    if before.plan != run.plan:
        said = f"{path} has another config: it was begun by `{' '.join(before.command)}`."
        raise UsageError(f"{said} Resume it with the same config and options.")
    if before.parts != run.parts:
        had, asked = (
            f"--part {', '.join(r.parts)}" if r.parts else "no --part" for r in (before, run)
        )
        said = f"{path} was begun with {had}, and this run has {asked}."
        raise UsageError(f"{said} Resume it as it was.")
    unlike = differences(before.environment, run.environment, host=host)
    if apart := next(filter(parts_ways, unlike), None):
        raise UsageError(
            f"{path} cannot be resumed here: different {apart}. One machine and one build measure "
            "a whole run. Resume it with those, or start a new run with another -o or --save."
        )
    return before, unlike


@contextlib.contextmanager
def kept(kind: str, record: Callable[[], str], where: Path | None = None) -> Iterator[None]:
    """Keep a record on disk, or in ``where``, while the block prints it; name it on failure."""
    path = where or _write(kind, record())
    try:
        yield
    except BaseException:
        if path:
            with contextlib.suppress(BrokenPipeError):
                tell(f"losscli: {path} holds the finished results")
        raise
    if path and not where:
        path.unlink(missing_ok=True)


def _write(kind: str, text: str) -> Path | None:
    for folder_of in (_folder_of_user, lambda: Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError, UnfitError, UsageError):
            folder = folder_of()
            folder.mkdir(parents=True, exist_ok=True)
            prefix = f"{kind}-{datetime.now():%Y%m%d-%H%M%S}-"
            handle, name = tempfile.mkstemp(prefix=prefix, suffix=".jsonl", dir=folder)
            os.close(handle)
            write_file(Path(name), text)
            return Path(name)
    return None


def _folder_of_user() -> Path:
    return user_directory("data", VARIABLE, "results") / "unprinted"
