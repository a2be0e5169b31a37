"""Keep verdicts: the same source, judged in the same way on the same machine, is judged once."""

import contextlib
import os
import platform
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

import losscli
from losscli.build.plan import csrc_root
from losscli.errors import LosscliError
from losscli.files import directories
from losscli.files.digest import digest
from losscli.implementations.languages import LANGUAGES, version_of
from losscli.implementations.source import Source
from losscli.judge.job import Job
from losscli.judge.verdict import Verdict, renamed
from losscli.machine.commands import cxx, first_line
from losscli.machine.devices import core_count, cpu_model, driver_cuda, find_gpus
from losscli.reasons import Code
from losscli.runs.encoding import UNREADABLE, RecordError, json_line, read_json
from losscli.runs.files import replace_file

CHANCE_WORDS = {"NOT JUDGED", "HANGS"}
CHANCE_CODES = {
    *(Code.TIMING_TAMPERING, Code.INTERFERENCE, Code.IMPOSSIBLE, Code.PROCESS_DIED),
    *(Code.DEVICE_ERROR, Code.MEMORY_LIMIT, Code.TIMEOUT, Code.INSUFFICIENT_MEMORY),
    *(Code.DEVICE_UNHEALTHY, Code.INTERRUPTED, Code.BUSY, Code.ERROR),
}
"""Words and reasons of verdicts that depend on chance and are not kept."""


class VerdictCache:
    """Verdicts in a folder."""

    def __init__(self, root: Path, machine: Sequence[str] | None = None) -> None:
        """``machine``: what decides a verdict besides its job; tests replace it."""
        self.root = root
        self._machine = tuple(describe_machine() if machine is None else machine)

    def find(self, job: Job) -> Verdict | None:
        """Return the verdict on the same job, with this job's names; UnfitError if not private."""
        files = _files(job)
        if files is None:
            return None
        path = self._path(job, files)
        for each in (path.parent, path):
            directories.require_private(each)
        try:
            found = read_json(Verdict, path.read_bytes())
        except (OSError, RecordError, *UNREADABLE):
            return None
        directories.note_use(path)
        return replace(renamed(found, job, {found.file: job.file}), cached=True, seconds={})

    def keep(self, job: Job, verdict: Verdict) -> None:
        """Keep a verdict unless it depends on chance; ignore a full disk."""
        if verdict.cached or verdict.word in CHANCE_WORDS or verdict.codes & CHANCE_CODES:
            return
        files = _files(job)
        # The file may have been changed while it was judged.
        if files is None or verdict.sha256 not in ("", files[0].sha256):
            return
        path = self._path(job, files)
        with contextlib.suppress(OSError):
            directories.make_private(self.root)
            directories.make_private(path.parent)
            replace_file(path, [f"{json_line(verdict.to_json())}\n".encode()])

    def drop_unused(self, now: float) -> None:
        """Remove verdicts that were not used for long; ``now`` in seconds since the epoch."""
        for path in self.root.glob("??/*.json"):
            with contextlib.suppress(OSError):
                if directories.is_unused(path, now):
                    path.unlink()

    def _path(self, job: Job, files: Sequence[Source]) -> Path:
        asked = {**job.to_json(), "id": "", "file": "", "reference": ""}
        contents = [f"{file.name} {file.sha256}" for file in files]
        parts = (*self._machine, *_gpus(job.device), *contents, json_line(asked))
        key = digest(*parts)[:32]
        return self.root / key[:2] / f"{key}.json"


def user_verdicts() -> VerdictCache:
    """Return this user's cache without unused verdicts; UnfitError as in ``find``."""
    found = VerdictCache(directories.private_folder("verdicts", "verdicts"))
    found.drop_unused(time.time())
    return found


def describe_machine() -> Iterator[str]:
    """Yield what decides a verdict besides its job."""
    yield f"losscli {own_version()}"
    for package in ("torch", *(language.package for language in LANGUAGES)):
        yield f"{package} {version_of(package)}"
    yield f"python {platform.python_version()} {platform.platform()}"
    yield f"cpu {cpu_model()} {core_count()}"
    yield f"compiler {first_line([*cxx(), '--version'])}"
    for name in ("CXX", "CUDACXX", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST"):
        yield f"{name}={os.environ.get(name, '')}"


@cache
def _gpus(device: str) -> tuple[str, ...]:
    if device == "cpu":
        return ("cpu",)
    models = {gpu.model for gpu in find_gpus() if device in ("auto", "cuda", gpu.name)}
    return ("cuda", str(driver_cuda()), *sorted(models))


@cache
def own_version() -> str:
    """Return the version with a digest of losscli's sources: an edited check is another version."""
    package = Path(losscli.__file__).resolve().parent
    # Same order in a checkout and in a wheel, which also has the tests' candidates.
    own = [*package.rglob("*.py"), *package.glob("judge/*.toml")]
    own = [path for path in own if path.relative_to(package).parts[0] != "candidates"]
    paths = [*sorted(own), *sorted(p for p in csrc_root().rglob("*") if p.is_file())]
    found = digest(*(part for path in paths for part in (path.name, path.read_bytes())))
    return f"{losscli.__version__} {found[:32]}"


def _files(job: Job) -> list[Source] | None:
    """Return the files of a job; None where they import others, so a digest does not decide."""
    with contextlib.suppress(LosscliError):
        files = [Source.read(named) for named in filter(None, (job.file, job.reference))]
        if all(file.stands_alone for file in files):
            return files
    return None
