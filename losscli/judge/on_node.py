"""Judge a job on a node of a cluster, by the same process as on any machine."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from losscli.errors import UnfitError, UsageError
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.source import Source, path_of
from losscli.judge.job import Job
from losscli.judge.pool import COMMAND, JudgeProcess
from losscli.judge.pool import environment as usual_environment
from losscli.judge.verdict import Verdict, renamed
from losscli.judge.verdict_cache import own_version, user_verdicts
from losscli.machine.description import compiler
from losscli.runs.encoding import finite
from losscli.units import format_bytes

THREADS = "OMP_NUM_THREADS"
"""Ray sets it to a task's cores; a judge uses the machine's, or the driver's value."""
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


@dataclass(frozen=True)
class Order:
    """A node's order: a parcel, and how to judge it."""

    parcel: Parcel
    version: str
    """``own_version`` of the driver."""
    command: tuple[str, ...] = COMMAND
    cached: bool = True
    threads: str | None = None

    def to_json(self) -> str:
        """Return the text that is sent."""
        return json.dumps(msgspec.to_builtins(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return an order as sent; msgspec.ValidationError if another losscli wrote it."""
        return msgspec.convert(json.loads(text), cls)


def pack(job: Job) -> Parcel:
    """Return a job with its files and those they use; UsageError if missing or too large."""
    files: dict[str, bytes] = {}
    names: dict[str, str] = {}
    for role in ROLES:
        if not (named := getattr(job, role)):
            continue
        source = Source.find(named)
        path, folder = source.path, source.path.parent
        with suppress(NotJudgeableError):  # no Python: it fails when it is judged
            for found in () if source.stands_alone else _files_of(folder, named):
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
            own = getattr(job, role)
            names |= {named: own, str(path_of(named)): str(path_of(own))}
    return renamed(verdict, job, names)


def answer_to(text: str) -> dict[str, object]:
    """Return the answer to an order as JSON: the verdict, or why there is none."""
    try:
        return {"verdict": finite(answer(Order.read(text)).to_json())}
    except msgspec.ValidationError as error:
        return {"why": f"it has no losscli such as this one: {error}"}
    except UnfitError as error:
        return {"why": str(error)}


def answer(order: Order) -> Verdict:
    """Return the verdict; UnfitError if this node cannot judge."""
    if why := unfit(order.version):
        raise UnfitError(why)
    with tempfile.TemporaryDirectory(prefix="losscli-") as folder:
        job = unpack(order.parcel, Path(folder))
        known = verdicts() if order.cached else None
        verdict = known.find(job) if known else None
        if verdict is None:
            verdict = judge.ask(job, order.command, environment(order.threads))
            assert verdict  # nobody closes it
            if known:
                known.keep(job, verdict)
        return restored(verdict, job, order.parcel.job)


def unfit(version: str) -> str:
    """Return why this machine cannot judge for another losscli; empty where it can."""
    own = own_version()
    if own != version:
        edited = own.partition(" ")[0] == version.partition(" ")[0]
        why = ": the source files of the two differ, or were edited while it judged"
        asks = f"it has losscli {_short(own)}, and losscli {_short(version)} asks"
        return asks + (why if edited else "")
    return "it has no C++ compiler" if compiler() is None else ""


def environment(threads: str | None) -> dict[str, str]:
    """Return the environment of a judge, without Ray's variables."""
    own = usual_environment().items()
    found = {n: v for n, v in own if n != THREADS and not n.startswith("RAY_")}
    return found if threads is None else {**found, THREADS: threads}


judge = JudgeProcess()
"""Judges here until its GPU changes."""
verdicts = cache(user_verdicts)
"""The verdicts kept on this machine, or in a folder that nodes share."""


def _short(version: str) -> str:
    number, _, digest = version.partition(" ")
    return f"{number} ({digest[:8]})"


def _files_of(folder: Path, named: str) -> Iterator[Path]:
    size, count = 0, 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        if hidden or not path.is_file():
            continue
        size, count = size + path.stat().st_size, count + 1
        if size > MOST_BYTES or count > MOST_FILES:
            most = f"more than {MOST_FILES} files or {format_bytes(MOST_BYTES)}"
            text = f"{named} uses other files of its folder, which has {most} and is not sent."
            raise UsageError(f"{text} Move what it needs to a separate folder.")
        yield path
