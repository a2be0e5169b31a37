"""The resources of each CUDA kernel, from ``ptxas -v``."""

import re
import shutil
import subprocess
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_FRAME = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")

_REPORT = re.compile(r"ptxas info|^\s+\d+ bytes stack frame")


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


def parse(log: str) -> list[KernelResources]:
    """Return every kernel in a build's log, with mangled names."""
    kernels = []
    entry, frame, described = None, (0, 0, 0), ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, frame = match, (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            described = match["name"]
        elif match := _FRAME.search(line):
            # Functions that the kernel calls have their own frames.
            if entry and described == entry["name"]:
                frame = (int(match["stack"]), int(match["stores"]), int(match["loads"]))
        elif entry and (match := _USED.search(line)):
            shared = _SHARED.search(line)
            kernels.append(
                KernelResources(
                    entry["name"],
                    entry["arch"],
                    int(match["registers"]),
                    int(shared[1]) if shared else 0,
                    *frame,
                )
            )
            entry = None
    return kernels


def is_report(line: str) -> bool:
    """Tell whether a log line is from ptxas's report."""
    return bool(_REPORT.search(line))


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
