"""A job with the files that it needs, as plain data for another machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from losscli.errors import UsageError
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.source import Source, path_of
from losscli.judge.job import Job
from losscli.judge.verdict import Verdict, renamed
from losscli.units import format_bytes

MOST_BYTES = 64 * 2**20
MOST_FILES = 1000
"""Limits of a folder that is sent with a candidate that uses other files of it."""
ROLES = ("file", "reference")


@dataclass(frozen=True)
class Parcel:
    """A job and its files."""

    job: Job
    files: dict[str, bytes]
    """By path, below a folder for each role: ``file/kernel.py``."""
    names: dict[str, str]
    """Each role's file below that folder, with the name of its function."""


def pack(job: Job) -> Parcel:
    """Return a job with its files and those they use; UsageError if missing or too large."""
    files: dict[str, bytes] = {}
    names: dict[str, str] = {}
    for role in ROLES:
        named = getattr(job, role)
        if not named:
            continue
        source = Source.find(named)
        path, folder = source.path, source.path.parent
        if not _stands_alone(source):
            for found in _files_of(folder, named):
                files[f"{role}/{found.relative_to(folder).as_posix()}"] = found.read_bytes()
        files[f"{role}/{path.name}"] = source.data
        names[role] = f"{path.name}:{source.name}" if source.name else path.name
    return Parcel(job, files, names)


def unpack(parcel: Parcel, folder: Path) -> Job:
    """Write a parcel's files into a folder; return the job that names them there."""
    for name, data in parcel.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    there = {role: str(folder / role / name) for role, name in parcel.names.items()}
    return replace(parcel.job, **there)


def restored(verdict: Verdict, there: Job, job: Job) -> Verdict:
    """Return a verdict on an unpacked job with the job's original names."""
    names: dict[str, str] = {}
    for role in ROLES:
        if named := getattr(there, role):
            names[named] = getattr(job, role)
            names[str(path_of(named))] = str(path_of(getattr(job, role)))
    return renamed(verdict, job, names)


def _stands_alone(source: Source) -> bool:
    """Tell whether a file needs no other; a file that is not Python fails when it is judged."""
    try:
        return source.stands_alone
    except NotJudgeableError:
        return True


def _files_of(folder: Path, named: str) -> Iterator[Path]:
    size, count = 0, 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            continue
        if not path.is_file():
            continue
        size, count = size + path.stat().st_size, count + 1
        if size > MOST_BYTES or count > MOST_FILES:
            raise UsageError(
                f"{named} uses other files of its folder, which has more than {MOST_FILES} files "
                f"or {format_bytes(MOST_BYTES)} and is not sent. Move what it needs to a separate "
                "folder."
            )
        yield path
