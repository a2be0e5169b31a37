"""Finds a C++ compiler; ``nvcc.py`` finds nvcc."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from losscli.errors import UnfitError
from losscli.machine.commands import command_in, run

MINIMUM_GCC = (9, 0)
"""The first whose C++17 PyTorch's headers accept."""
VERSION_SECONDS = 30
"""The maximum time for ``--version``, for example on a slow network drive."""


@dataclass(frozen=True)
class Tool:
    """A compiler that is recent enough, with this machine's arguments."""

    command: tuple[str, ...]
    """The command, with more than one word if wrapped, as in ``ccache g++``."""
    identity: str
    """``--version`` output, which reveals wrappers and upgrades."""
    version: tuple[int, int]
    compile_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    gencode: tuple[str, ...] = ()
    """The GPUs that nvcc compiles for, also among the flags; empty for a C++ compiler."""


def find_compiler(environ: Mapping[str, str] = os.environ) -> Tool:
    """Find GCC's C++ compiler through $CXX or the PATH; UnfitError if there is none.

    The kernels run in PyTorch's thread pool, which uses GCC's libgomp; clang needs another runtime.
    """
    if command := command_in("CXX", environ):
        require_program(command[0], "CXX", "a C++ compiler", environ)
    elif found := which("g++", environ) or which("c++", environ):
        command = (found,)
    else:
        raise UnfitError(
            "no C++ compiler: neither g++ nor c++ is on the PATH. Install g++ "
            "(`apt-get install g++`, `dnf install gcc-c++`) or set CXX."
        )
    identity = version_text(command)
    name = shlex.join(command)
    if "Free Software Foundation" not in identity:
        raise UnfitError(
            f"{name} is not GCC. The kernels share PyTorch's OpenMP runtime, which is GCC's: "
            "set CXX=g++, installing g++ if need be."
        )
    version = read_version(r"\)\s+(\d+)\.(\d+)", identity, name)
    if version < MINIMUM_GCC:
        raise UnfitError(
            f"{name} is GCC {dotted(version)}, but the kernels need {dotted(MINIMUM_GCC)} or "
            "newer. Install a newer g++ and name it in CXX."
        )
    return Tool(command, identity, version)


def find_host_compiler(compiler: Tool, environ: Mapping[str, str] = os.environ) -> str:
    """Return nvcc's host compiler: $CUDAHOSTCXX, or the C++ compiler."""
    if not (given := environ.get("CUDAHOSTCXX", "").strip()):
        return compiler.command[-1]  # without its wrapper
    require_program(given, "CUDAHOSTCXX", "a host compiler for nvcc", environ)
    return given


def which(program: str, environ: Mapping[str, str]) -> str | None:
    """Return a program's place on the PATH."""
    return shutil.which(program, path=environ.get("PATH", os.defpath))


def require_program(program: str, variable: str, expected: str, environ: Mapping[str, str]) -> None:
    """Raise UnfitError if a variable names no program."""
    if not which(program, environ):
        raise UnfitError(
            f"{variable} should name {expected}, but there is no program '{program}'. "
            f"Correct or unset {variable}."
        )


def version_text(command: tuple[str, ...]) -> str:
    """Return ``--version`` output; UnfitError if the program does not run."""
    name = shlex.join(command)
    try:
        return run([*command, "--version"], timeout=VERSION_SECONDS, check=True).stdout.strip()
    except subprocess.TimeoutExpired:
        why = f"does not end within {VERSION_SECONDS} s"
    except OSError as error:
        why = f"does not run: {error.strerror}"
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or error.stdout).strip().splitlines()
        says = f", saying: {lines[0]}" if lines else ""
        why = f"failed with exit code {error.returncode}{says}"
    raise UnfitError(f"`{name} --version` {why}. Reinstall it or choose another.")


def read_version(pattern: str, text: str, name: str) -> tuple[int, int]:
    """Find a version in such output; UnfitError if there is none."""
    if not (match := re.search(pattern, text)):
        raise UnfitError(f"`{name} --version` prints no version losscli can read: {text[:80]!r}.")
    return int(match[1]), int(match[2])


def dotted(version: Iterable[int]) -> str:
    """Return ``12.4``."""
    return ".".join(map(str, version))


def as_numbers(version: str) -> tuple[int, ...]:
    """Return ``(2, 34)`` for ``2.34``."""
    return tuple(int(number) for number in re.findall(r"\d+", version)) or (0, 0)
