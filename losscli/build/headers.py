"""PyTorch's header, precompiled: C++ files that are judged then compile in half of the time.

GCC finds it in a folder of ``CPATH`` and takes it where the flags are those that it was made with;
otherwise it takes the header itself. Clang and nvcc take none.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from losscli.directories import cache_directory
from losscli.errors import BuildError, UnfitError
from losscli.machine.commands import command_in, first_line

VARIANTS: dict[str, tuple[str, ...]] = {"plain": (), "optimized": ("-O3",)}
"""Flags that need a header of their own: one made with -O3 does for -O2."""
HEADER = Path("torch", "extension.h")


def flags() -> list[str]:
    """Return the flags with which PyTorch compiles an extension."""
    from torch.utils import cpp_extension

    written = inspect.getsource(cpp_extension._write_ninja_file_to_build_library)
    standard = re.search(r"-std=c\+\+\d+", written)
    folders = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    included = [part for folder in folders for part in ("-isystem", folder)]
    given = [standard[0]] if standard else []
    return ["-DTORCH_API_INCLUDE_EXTENSION_H", *included, "-fPIC", *given]


@cache
def folder() -> Path:
    """Return the folder of this compiler's, Python's and PyTorch's header, made or not."""
    import torch

    version = first_line([*_compiler(), "--version"])
    parts = f"{torch.__version__} {torch.__file__} {sys.version} {_compiler()} {version}"
    key = hashlib.sha256(parts.encode()).hexdigest()[:16]
    return cache_directory("precompiled headers") / "headers" / key


def search_path(given: str) -> str:
    """Return ``CPATH`` with the folder, if the header has been made; ``given`` is what it was."""
    found = (folder() / f"{HEADER}.gch").is_dir()
    return os.pathsep.join([str(folder()), *([given] if given else [])]) if found else given


def precompile(settings: Sequence[str] | None = None) -> Path:
    """Make the header where it is missing, and return its folder.

    ``settings``: flags; those of PyTorch's extensions if None.

    Raises:
        UnfitError: the compiler is not GCC.
        BuildError: it failed.
    """
    told = subprocess.run([*_compiler(), "--version"], capture_output=True, text=True, check=False)
    if "Free Software Foundation" not in told.stdout:
        name = " ".join(_compiler())
        raise UnfitError(f"only GCC takes a precompiled header, and {name} is not GCC. Set CXX.")
    settings = flags() if settings is None else settings
    header = next(f for s in settings if (f := Path(s) / HEADER).is_file())
    made = folder() / f"{HEADER}.gch"
    for name, more in VARIANTS.items():
        if (made / name).exists():
            continue
        made.mkdir(parents=True, exist_ok=True)
        new = folder() / f"{name}-{os.getpid()}"
        command = [*_compiler(), *settings, *more, "-x", "c++-header", str(header), "-o", str(new)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            new.unlink(missing_ok=True)
            raise BuildError(f"PyTorch's header could not be precompiled: {done.stderr.strip()}")
        new.replace(made / name)
    return folder()


def _compiler() -> tuple[str, ...]:
    return command_in("CXX") or ("c++",)
