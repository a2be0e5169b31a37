"""Reads what compilers print: why a build failed, and the resources of each CUDA kernel."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

_ERROR = re.compile(
    r"\berror\s*:"  # gcc, nvcc's front end, ptxas
    r"|^nvcc fatal"
    r"|undefined reference|cannot find -l|^collect2:"
    r"|\bKilled\b",
    re.IGNORECASE,
)

_PLACED = re.compile(
    r"(?P<file>[^\s:()]+)(?::(?P<line>\d+)(?::\d+)?|\((?P<number>\d+)\)): "
    r"(?:fatal |catastrophic )?error(?: #[\w-]+)?: (?P<what>.+)"
)
"""An error with its place, as GCC, Clang and nvcc print it."""

_HINTS = {
    r"Killed|out of memory|virtual memory exhausted": "The machine ran out of memory: set "
    "MAX_JOBS=1, or close other programs.",
    r"unsupported GNU version|unsupported clang version": "This nvcc does not support the host "
    "compiler: name an older g++ in CUDAHOSTCXX.",
    r"Unsupported gpu architecture 'compute_([56]\d|7[0-4])'": "This nvcc has dropped that GPU, as "
    "CUDA 13 did all below compute capability 7.5: use a CUDA 12 toolkit, with a torch built for "
    "CUDA 12, and name its nvcc in CUDACXX.",
    r"Unsupported gpu architecture|is not defined for option 'gpu-architecture'": "This nvcc does "
    "not know that GPU: install a newer CUDA toolkit, or set LOSSCLI_CUDA_ARCHITECTURES to one it "
    "knows, 90 for example.",
    r"cc1plus|cannot execute": "The C++ compiler is only partly installed: reinstall g++.",
    r"(ATen|c10|torch)/\S*: No such file": "PyTorch's headers do not match what losscli expects: "
    "install torch 2.10 or newer.",
    r"cannot find -l(c10|torch)": "PyTorch's libraries are missing: reinstall torch.",
    r"(stdlib|cmath|cstd\w+|algorithm|array|bits/\S+)(\.h)?: No such file": "The C++ standard "
    "library is missing: reinstall g++.",
    r"crt/\S+: No such file|cuda\w*\.h: No such file|cannot find -lcudart": "The CUDA toolkit is "
    "only partly installed: install its runtime headers and libraries.",
    r"(namespace|class|struct) .?(at|c10|torch)\b.* (no member|not declared)"
    r"|is not a member of .?(at|c10|torch)\b": "This PyTorch does not match what losscli expects: "
    "install torch 2.10 or newer.",
}
"""Advice by the pattern of a known failure; the first that matches counts."""
_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def first_error(printed: str) -> str:
    """Return the first error line, or the last line with text."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    # ninja repeats a failed command, which may look like an error.
    commands = {index + 1 for index, line in enumerate(lines) if line.startswith("FAILED:")}
    told = [line for index, line in enumerate(lines) if index not in commands]
    return next(filter(_ERROR.search, told), told[-1] if told else "the compiler printed nothing")


def placed_error(printed: str, source: str = "", name: str = "") -> str:
    """Return the first error with its place and code line, or ``""``.

    The place is in file ``name`` if the code is unique in its text ``source``.
    """
    lines = printed.splitlines()
    for number, line in enumerate(lines, 1):
        if found := _PLACED.match(line.strip()):
            code = _code(lines[number : number + 2])
            place = f"{PurePath(found['file']).name}:{found['line'] or found['number']}"
            having = [n for n, each in enumerate(source.splitlines(), 1) if code and code in each]
            if len(having) == 1:
                place = f"{name}:{having[0]}"
            return f"{place}: error: {found['what']}" + (f", in `{code}`" if code else "")
    return ""


def _code(after: Sequence[str]) -> str:
    for line in after:
        if shown := re.match(r"\s*\d+ \|(.*)", line):  # of GCC and Clang
            return shown[1].strip()
    pointed = len(after) == 2 and after[1].strip("~ ") == "^"  # of nvcc
    return after[0].strip() if pointed else ""


def hint(printed: str) -> str:
    """Return advice for a known failure, or ``""``."""
    return next((text for pattern, text in _HINTS.items() if re.search(pattern, printed)), "")


def failed_step(printed: str) -> str:
    """Return the first failed output."""
    match = re.search(r"^FAILED: (?:\[code=\d+\] )?(\S+)", printed, re.MULTILINE)
    return match[1] if match else "the build"


@dataclass(frozen=True)
class KernelResources:
    """One kernel on one architecture; bytes per thread, static shared memory per block."""

    kernel: str
    architecture: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


def kernels_of(log: str) -> list[KernelResources]:
    """Return the kernels in a build's log, with mangled names."""
    kernels = []
    entry, frame, described = None, (0, 0, 0), ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, frame = match, (0, 0, 0)
        elif match := re.search(r"Function properties for (\S+)", line):
            described = match[1]
        elif match := _FRAME.search(line):
            # Functions that the kernel calls have their own frames.
            if entry and described == entry["name"]:
                frame = (int(match[1]), int(match[2]), int(match[3]))
        elif entry and (match := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            used = (int(match[1]), int(shared[1]) if shared else 0)
            kernels.append(KernelResources(entry["name"], entry["arch"], *used, *frame))
            entry = None
    return kernels


def is_report(line: str) -> bool:
    """Tell whether a log line is from ptxas's report."""
    return bool(re.search(r"ptxas info|^\s+\d+ bytes stack frame", line))


def readable_names(names: list[str]) -> list[str]:
    """Return short C++ names, if c++filt is installed."""
    program = shutil.which("c++filt")
    if not program or not names:
        return names
    result = subprocess.run([program], input="\n".join(names), capture_output=True, text=True)
    demangled = result.stdout.splitlines()
    return [shorten(name) for name in demangled] if len(demangled) == len(names) else names


def shorten(name: str) -> str:
    """Return ``forward<mse, float>`` for ``void losscli::forward<losscli::mse, float>(Args)``."""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"\b\w+::", "", name).removeprefix("void ").replace("> >", ">>")
    # The argument list follows the template's, which may contain a cast such as (int)4.
    depth = 0
    for index, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            return name[:index]
    return name
