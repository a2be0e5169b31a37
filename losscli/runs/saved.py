"""Saved runs: one JSONL file per name in the user's data directory."""

import os
import re
from pathlib import Path

from losscli.errors import UnfitError, UsageError, unknown, writing
from losscli.files.directories import user_directory

VARIABLE = "LOSSCLI_DATA_DIR"
SUFFIX = ".jsonl"
JOURNAL = ".journal.jsonl"
"""The end of a checkpoint's name, which follows that of its output."""
_KILLED = f"{SUFFIX}{JOURNAL}"


def runs_directory() -> Path:
    """Return the directory of runs: $LOSSCLI_DATA_DIR, or losscli in $XDG_DATA_HOME."""
    return user_directory("data", VARIABLE, "runs") / "runs"


def is_there(path: Path) -> bool:
    """Tell whether a path exists; UsageError if a directory on the way is not searchable."""
    try:
        os.stat(path)
    except PermissionError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}.") from None
    except (OSError, ValueError):  # not there, or no path at all
        return False
    return True


def check_run_name(text: str) -> str:
    """Return ``text`` if it is a valid run name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", text) or text.endswith(SUFFIX):
        rule = "letters, digits and . _ + -, a letter or digit first, without .jsonl at the end"
        raise UsageError(f"'{text}' cannot name a run. Write {rule}.")
    return text


def prepare(name: str) -> Path:
    """Return the path to save a run at, and create its directory; UnfitError if that fails."""
    folder = runs_directory()
    with writing(folder, f"Name another in {VARIABLE}.", "make"):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise UnfitError(f"{folder} cannot be written. Name another directory in {VARIABLE}.")
    return folder / f"{name}{SUFFIX}"


def _names() -> list[str]:
    folder = runs_directory()
    with writing(folder, f"Name another directory in {VARIABLE}.", "read"):
        return os.listdir(folder) if is_there(folder) else []


def saved_runs() -> dict[str, Path]:
    """Return saved runs by name, the oldest first."""
    names = (name for name in _names() if name.endswith(SUFFIX) and not name.endswith(_KILLED))
    runs = filter(is_there, map(runs_directory().joinpath, names))
    return {path.stem: path for path in sorted(runs, key=lambda path: path.stat().st_mtime_ns)}


def killed_runs() -> dict[str, Path]:
    """Return the journals of unfinished runs, by the run's name."""
    names = (name for name in sorted(_names()) if name.endswith(_KILLED))
    return {name.removesuffix(_KILLED): runs_directory() / name for name in names}


def find_run(name: str) -> Path:
    """Return the file of a path or else a saved run; UsageError if neither exists."""
    path = Path(name)
    there = name and is_there(path)
    if there and not os.path.isdir(path):
        return path
    runs = saved_runs()
    if there or name in runs:
        return runs.get(name, path)
    if not runs or os.sep in name or "." in name:
        advice = "Name a result in JSON or JSONL, or a run saved by `losscli bench --save NAME`."
        raise UsageError(f"there is no run '{name}'. {advice}")
    raise UsageError(unknown("run", name, runs))
