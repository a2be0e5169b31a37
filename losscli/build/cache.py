"""The cache of built libraries: one folder per key, renamed into place when finished.

::

    <root>/mse_cpu-<key>/   liblosscli_mse_cpu.so, manifest.json, build.log
                                                    finished, never changed again
    <root>/work/mse_cpu-<configuration>/            objects, for the next build
    <root>/work/build.ninja                         of the last build
    <root>/locks/build                              held while building

A key covers everything that determines the library. A configuration leaves out the sources, so a
build in its folder recompiles only what was edited. A portable key leaves out the compiler, to find
a library without one.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from losscli.errors import UnfitError
from losscli.files import directories
from losscli.files.digest import digest
from losscli.processes.lock import open_lock

from .ninja import render
from .plan import Plan
from .targets import Sources
from .toolchain import dotted

MANIFEST = "manifest.json"
"""Stored with each library: its integrity and target. Size and digest are checked at every load.
SHA-256 took 1.1 ms per MB on a CPU with instructions for it; operators (360 KB) and a loss's CPU
kernels (220 KB) take 0.7 ms together, once per process."""
LOG = "build.log"
_BESIDE = ".losscli-new-"
_KEY = "[0-9a-f]" * 16


@dataclass(frozen=True)
class Manifest:
    """Facts of a finished library."""

    library: str
    bytes: int
    sha256: str
    portable: str
    """The key of everything but the compiler."""
    cuda: str | None = None
    """Version of nvcc."""
    gencode: tuple[str, ...] = ()
    """The GPUs that nvcc compiled for."""
    glibc: str = ""
    """Of a wheel's library, the oldest version of glibc that it loads with."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Self:
        """Read JSON; TypeError or KeyError if its fields are others."""
        return cls(**{**facts, "gencode": tuple(facts["gencode"])})

    def damage(self, folder: Path) -> str:
        """Return how the library is damaged, or ``""``."""
        path = folder / self.library
        try:
            size = path.stat().st_size
            if size != self.bytes:
                return f"{size:,} of {self.bytes:,} bytes are present"
            changed = _file_digest(path) != self.sha256
            return "its content has changed since it was built" if changed else ""
        except OSError as error:
            return f"{self.library} cannot be read: {error.strerror}"


@dataclass(frozen=True)
class Cache:
    """A folder of built libraries."""

    root: Path

    def folder(self, plan: Plan) -> Path:
        """Return a finished library's folder."""
        return self.root / f"{plan.name}-{build_key(plan)}"

    def library(self, plan: Plan) -> Path:
        """Return the library's path, built or not."""
        return self.folder(plan) / plan.library

    @property
    def work(self) -> Path:
        """The folder in which ninja runs."""
        return self.root / "work"

    def work_folder(self, plan: Plan) -> Path:
        """Return the folder to build a library in."""
        return self.work / f"{plan.name}-{configuration_key(plan)}"

    def find(self, plan: Plan) -> Path | None:
        """Return a finished library, if it is intact."""
        whole = self.folder(plan).is_dir() and not self.damage(plan)
        return self.library(plan) if whole else None

    def damage(self, plan: Plan) -> str:
        """Return how a finished library is damaged; ``""`` if it is intact or missing."""
        folder = self.folder(plan)
        return _damage(folder, plan.library) if folder.is_dir() else ""

    def find_without_tool(self, plan: Plan, fits: Callable[[Manifest], bool]) -> Path | None:
        """Return the newest library of the same sources that ``fits``."""
        key = portable_key(plan)
        found = (
            folder / plan.library
            for folder in self.root.glob(f"{plan.name}-{_KEY}")
            if (known := _read_manifest(folder)) and known.portable == key and fits(known)
            if not _damage(folder, plan.library)
        )
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    def require_private(self) -> None:
        """Raise UnfitError if another user could replace libraries."""
        for folder in (self.root, self.work):
            directories.require_private(folder)

    def require_writable(self) -> None:
        """Raise UnfitError if it cannot be created or written."""
        with self.writing(), tempfile.TemporaryFile(dir=self.nearest()):
            pass

    def nearest(self) -> Path:
        """Return the root, or its nearest existing parent."""
        return next(path for path in (self.root, *self.root.parents) if path.exists())

    def open_lock(self) -> IO[str]:
        """Open the build lock's file, and create the cache if needed."""
        with self.writing():
            directories.make_private(self.root, 0o755)
            directories.make_private(self.work)
            # Hidden from a judge's workers, because anyone who opens a lock can take it.
            directories.make_private(self.root / directories.LOCKS)
            return open_lock(self.root / directories.LOCKS / "build")

    def prepare(self, plans: Sequence[Plan], *, fresh: bool) -> Path:
        """Update the plans' work folders; return where to run ninja."""
        with self.writing():
            build = self.work / "build.ninja"
            text = render((self.work_folder(plan).name, plan) for plan in plans)
            build.write_text(text, "utf-8", "surrogateescape")
            now = build.stat().st_mtime_ns
            for plan in plans:
                folder = self.work_folder(plan)
                # After a clock was set back, ninja would trust too new objects.
                newest = max((path.stat().st_mtime_ns for path in folder.rglob("*")), default=0)
                if folder.exists() and (fresh or newest > now):
                    shutil.rmtree(folder)
                copy_sources(plan.sources, folder / "csrc")
                # Then a library that exists after the build is from this build.
                (folder / plan.library).unlink(missing_ok=True)
                os.utime(folder)
        return self.work

    def publish(self, plan: Plan, log: str) -> Path:
        """Copy a built library and its manifest into its folder; return the library."""
        built, folder = self.work_folder(plan) / plan.library, self.folder(plan)
        with self.writing(), tempfile.TemporaryDirectory(dir=self.root, prefix=_BESIDE) as beside:
            new = Path(beside)
            shutil.copy2(built, new)
            (new / LOG).write_text(log, "utf-8")
            facts = json.dumps(asdict(describe(plan, built)), indent=1)
            (new / MANIFEST).write_text(f"{facts}\n")
            for path in (new, *new.iterdir()):
                path.chmod(0o755 if path.is_dir() else 0o644)
            if folder.exists():
                shutil.rmtree(folder)
            os.rename(new, folder)
        return folder / plan.library

    def drop_unused(self, now: float) -> None:
        """Remove folders unused for long; ``now`` in seconds since the epoch."""
        # Matched by name and content: the cache may be in a directory with other files.
        finished = [path.parent for path in self.root.glob(f"*-{_KEY}/liblosscli*.so")]
        working = [path.parent for path in self.work.glob(f"*-{_KEY}/csrc")]
        for folder in {*self.root.glob(f"{_BESIDE}*"), *finished, *working}:
            if directories.is_unused(folder, now):
                shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn a write error into an UnfitError with a remedy."""
        try:
            yield
        except OSError as error:
            why = f"cannot write the cache {self.root}: {error.strerror or error}. Name a folder "
            why += "that can be written"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                why = f"no space is left under {self.root} for the kernels. Free some, or name "
                why += "another folder"
            raise UnfitError(f"{why} in {directories.CACHE_VARIABLE}.") from None


def user_cache() -> Cache:
    """Return the user's cache."""
    return Cache(directories.cache_directory("kernels").absolute())


def describe(plan: Plan, built: Path) -> Manifest:
    """Return the facts of a library just built."""
    assert plan.tool
    cuda = dotted(plan.tool.version) if plan.tool.gencode else None
    size, content = built.stat().st_size, _file_digest(built)
    return Manifest(plan.library, size, content, portable_key(plan), cuda, plan.tool.gencode)


def configuration_key(plan: Plan) -> str:
    """Hash all but the sources: commands, compilers, PyTorch, CPU."""
    assert plan.tool
    return _key(render([(plan.target.name, plan)]), plan.tool.identity, *_ingredients(plan))


def portable_key(plan: Plan) -> str:
    """Hash all but the compiler: sources, common flags, PyTorch, CPU."""
    steps = (f"{step.output}\0{' '.join((*step.flags, *step.libraries))}" for step in plan.steps)
    return _key(plan.target.name, *steps, *_ingredients(plan), *_contents(plan))


def build_key(plan: Plan) -> str:
    """Hash everything that determines the library."""
    return _key(configuration_key(plan), *_contents(plan))


def _key(*parts: str | bytes) -> str:
    return digest(*parts)[:16]


def _ingredients(plan: Plan) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(plan.ingredients.items())]


def _contents(plan: Plan) -> list[str]:
    return [f"{name}\0{_key(content)}" for name, content in sorted(plan.sources.items())]


def _damage(folder: Path, library: str) -> str:
    for part in (folder, folder / library, folder / MANIFEST):
        directories.require_private(part)
    known = _read_manifest(folder)
    if not known or known.library != library:
        return f"{MANIFEST} is missing or damaged"
    return known.damage(folder)


def _read_manifest(folder: Path) -> Manifest | None:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return Manifest.of(json.loads((folder / MANIFEST).read_text()))
    return None


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_sources(sources: Sources, folder: Path) -> None:
    """Make a folder hold exactly these sources; write only changed ones, for ninja."""
    if folder.exists():
        for path in folder.rglob("*"):
            if path.is_file() and path.relative_to(folder).as_posix() not in sources:
                path.unlink()
    for name, content in sources.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
