"""PyTorch's precompiled header, which halves the compile time of judged C++ files.

GCC finds it through ``CPATH`` and uses it if the flags match; Clang and nvcc ignore it.
"""

import hashlib
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from losscli.console.notes import note
from losscli.errors import BuildError, UnfitError
from losscli.files.directories import make_private, private_folder, require_private
from losscli.machine.commands import cxx, first_line, run
from losscli.machine.pytorch import torch
from losscli.processes.lock import locked

from .cache import user_cache

HEADER = Path("torch", "extension.h")


def flags() -> list[str]:
    """Return PyTorch's flags for extensions."""
    from torch.utils import cpp_extension

    written = inspect.getsource(cpp_extension._write_ninja_file_to_build_library)
    folders = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    included = [part for folder in folders for part in ("-isystem", folder)]
    standard = re.findall(r"-std=c\+\+\d+", written)[:1]
    return ["-DTORCH_API_INCLUDE_EXTENSION_H", *included, "-fPIC", *standard]


def folder() -> Path:
    """Return the header's folder for this compiler, Python and PyTorch."""
    found = private_folder("precompiled headers", "headers") / _key()
    for part in (found, found / HEADER.parent, _made(found), *_made(found).glob("*")):
        require_private(part)
    return found


@cache
def _key() -> str:
    version = first_line([*cxx(), "--version"])
    parts = f"{torch.__version__} {torch.__file__} {sys.version} {cxx()} {version}"
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _made(folder: Path) -> Path:
    return folder / f"{HEADER}.gch"


def search_path(given: str) -> str:
    """Return ``CPATH`` with the header's folder, if it is whole: GCC fails on a truncated one."""
    found = folder()
    variants = [path.name for path in _made(found).glob("*")]
    if not variants or not all(_is_whole(found, name) for name in variants):
        return given
    return os.pathsep.join(filter(None, (str(found), given)))


def precompile(settings: Sequence[str] | None = None) -> Path:
    """Make the header unless it is whole; return its folder. UnfitError without GCC."""
    if "Free Software Foundation" not in run([*cxx(), "--version"]).stdout:
        name = " ".join(cxx())
        raise UnfitError(f"only GCC takes a precompiled header, and {name} is not GCC. Set CXX.")
    settings = flags() if settings is None else settings
    header = next(f for s in settings if (f := Path(s) / HEADER).is_file())
    found = folder()
    with user_cache().writing():
        make_private(_made(found), 0o755)
        with user_cache().open_lock() as file, locked(file, note):
            # One that is made with -O3 also works for -O2.
            for name, more in (("plain", ()), ("optimized", ("-O3",))):
                if not _is_whole(found, name):
                    _make(found, name, [*settings, *more, "-x", "c++-header", str(header)])
    return found


def _make(folder: Path, name: str, arguments: Sequence[str]) -> None:
    new = folder / f"{name}.new"
    done = run([*cxx(), *arguments, "-o", str(new)], umask=0o022)
    if done.returncode:
        new.unlink(missing_ok=True)
        raise BuildError(f"PyTorch's header could not be precompiled: {done.stderr.strip()}")
    _size(folder, name).write_text(f"{new.stat().st_size}\n")
    new.replace(_made(folder) / name)


def _size(folder: Path, name: str) -> Path:
    return folder / f"{name}.bytes"


def _is_whole(folder: Path, name: str) -> bool:
    try:
        return (_made(folder) / name).stat().st_size == int(_size(folder, name).read_text())
    except (OSError, ValueError):
        return False
