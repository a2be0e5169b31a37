"""Where built libraries are kept: one folder a key, written beside and renamed into place.

::

    <root>/cpu-<key>/   liblosscli.so, build.log, build.ninja   finished, never changed again
    <root>/work/cpu-<configuration>/                            objects, for the next build
    <root>/lock                                                 held while building

A key covers the sources and everything else that decides the outcome. A configuration is the same
without the sources: after an edit, a build in its folder recompiles what the edit touched.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from losscli.errors import UnfitError

from .ninja_file import render
from .plan import LIBRARIES, Plan, Sources

VARIABLE = "LOSSCLI_CACHE_DIR"
UNUSED_SECONDS = 30 * 24 * 3600.0
"""Folders nobody has used for so long are dropped at the next build."""
_BESIDE = ".losscli-new-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Cache:
    """A folder of built libraries."""

    root: Path

    def folder(self, plan: Plan) -> Path:
        """Return the folder of a finished library; it is there only if the library is."""
        return self.root / f"{plan.target}-{build_key(plan)}"

    def library(self, plan: Plan) -> Path:
        """Return the library's path, built or not."""
        return self.folder(plan) / plan.library

    def work_folder(self, plan: Plan) -> Path:
        """Return the folder to build in."""
        return self.root / "work" / f"{plan.target}-{configuration_key(plan)}"

    def open_lock(self) -> IO[str]:
        """Open the file that is locked while building, making the cache if need be."""
        with self.writing():
            self.root.mkdir(parents=True, exist_ok=True)
            return open(self.root / "lock", "a+", encoding="utf-8")

    def prepare(self, plan: Plan, *, fresh: bool) -> Path:
        """Bring the work folder up to date with the plan's sources and return it."""
        folder = self.work_folder(plan)
        with self.writing():
            if fresh and folder.exists():
                shutil.rmtree(folder)
            copy_sources(plan.sources, folder / "csrc")
            _write_if_changed(folder / "build.ninja", render(plan).encode())
            os.utime(folder)
        return folder

    def publish(self, plan: Plan, names: tuple[str, ...]) -> Path:
        """Copy files of the work folder into the library's own folder and return that."""
        work, folder = self.work_folder(plan), self.folder(plan)
        with self.writing(), tempfile.TemporaryDirectory(dir=self.root, prefix=_BESIDE) as beside:
            for name in names:
                shutil.copy2(work / name, beside)
            os.chmod(beside, 0o755)
            if folder.exists():
                shutil.rmtree(folder)
            os.rename(beside, folder)
        return folder

    def touch(self, plan: Plan) -> None:
        """Note that a library is in use; a cache that is read-only is used all the same."""
        with contextlib.suppress(OSError):
            os.utime(self.folder(plan))

    def drop_unused(self, now: float) -> None:
        """Remove folders that have not been used for long; ``now`` in seconds since the epoch."""
        # By names that nobody else gives: the cache may lie among other files.
        names = [f"{_BESIDE}*", *(target + "-" + "[0-9a-f]" * 16 for target in LIBRARIES)]
        patterns = [*names, *(f"work/{name}" for name in names)]
        for folder in [path for pattern in patterns for path in self.root.glob(pattern)]:
            if now - folder.stat().st_mtime > UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Say what to do where the cache cannot be written."""
        try:
            yield
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise UnfitError(
                    f"no room is left under {self.root} for the kernels. Free some, or name "
                    f"another folder in {VARIABLE}."
                ) from None
            raise UnfitError(
                f"cannot write the cache {self.root}: {error.strerror or error}. Name a folder "
                f"that can be written in {VARIABLE}."
            ) from None


def user_cache(environ: Mapping[str, str] = os.environ) -> Cache:
    """Return the cache of this user: $LOSSCLI_CACHE_DIR, $XDG_CACHE_HOME/losscli, ~/.cache."""
    if environ.get(VARIABLE):
        return Cache(Path(environ[VARIABLE]).expanduser().absolute())
    base = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Cache(Path(base).absolute() / "losscli")


def configuration_key(plan: Plan) -> str:
    """Digest everything but the sources: commands, compilers, PyTorch, CPU."""
    return _digest(render(plan), *(f"{k}={v}" for k, v in sorted(plan.ingredients.items())))


def build_key(plan: Plan) -> str:
    """Digest everything that decides the outcome."""
    files = (f"{name}\0{_digest(content)}" for name, content in sorted(plan.sources.items()))
    return _digest(configuration_key(plan), *files)


def copy_sources(sources: Sources, folder: Path) -> None:
    """Make a folder hold these sources and no others.

    A file is written only where its content differs, so that its time is that of its last change
    and ninja, which goes by times, is right about what is up to date.
    """
    if folder.exists():
        for path in folder.rglob("*"):
            if path.is_file() and path.relative_to(folder).as_posix() not in sources:
                path.unlink()
    for name, content in sources.items():
        _write_if_changed(folder / name, content)


def _write_if_changed(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _digest(*parts: str | bytes) -> str:
    """Return 16 hexadecimal digits; a part's length goes in too, so that parts cannot run over."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:16]
