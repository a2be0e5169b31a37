"""Writes plans as one build.ninja and runs ninja."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO

from losscli.console.notes import Progress, status
from losscli.errors import UnfitError, UsageError

from .plan import Plan, Step

Receiver = Callable[[str], None]
"""Called with ninja's status lines: ``[3/14] compiling csrc/...``."""
_STATUS = re.compile(r"\[(\d+)/(\d+)\] (.*)")

# Each command stores its output in a file, so that the log is complete even if most objects were
# up to date.
_RUN = "$run > $out.log 2>&1; status=$$?; cat $out.log; exit $$status"

_HEADER = f"""\
ninja_required_version = 1.11

rule compile
  command = {_RUN}
  description = $what
  deps = gcc

rule link
  command = {_RUN}
  description = $what
"""


class BuildProgress(Progress):
    """Shows a build's progress and remaining time."""

    def show(self, line: str) -> None:
        """Show ninja's line, such as ``[3/14] compiling csrc/...``."""
        if found := _STATUS.match(line):
            self.weights = [1.0] * int(found[2])
            self.finished = int(found[1])
            self.working_on(found[3])


def render(plans: Iterable[tuple[str, Plan]]) -> str:
    """Return build.ninja for plans and their folders."""
    steps = [
        _render(step, command, folder)
        for folder, plan in plans
        for step, command in plan.commands(folder)
    ]
    return "\n".join([_HEADER, *steps])


def _render(step: Step, command: tuple[str, ...], folder: str) -> str:
    rule = "compile" if step.depfile else "link"
    inputs = " ".join(_path(f"{folder}/{name}") for name in step.inputs)
    return (
        f"build {_path(f'{folder}/{step.output}')}: {rule} {inputs}\n"
        f"  run = {_escape(shlex.join(command))}\n"
        f"  what = {_escape(step.description)}\n"
    ) + (f"  depfile = {_escape(f'{folder}/{step.depfile}')}\n" if step.depfile else "")


def _path(path: str) -> str:
    return _escape(path).replace(" ", "$ ").replace(":", "$:")


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def find_ninja() -> Path:
    """Return the ninja package's binary."""
    try:
        import ninja
    except ImportError:
        raise UnfitError("the ninja package is missing. Run `pip install ninja`.") from None
    return Path(ninja.BIN_DIR) / "ninja"


def job_count(cores: int, free_bytes: float, environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of parallel jobs: $MAX_JOBS, or what cores and memory allow."""
    if not (given := environ.get("MAX_JOBS", "").strip()):
        # The largest compilation, a file that includes PyTorch, takes 1.5 GB with a margin.
        return max(1, min(cores, int(free_bytes // 1.5e9)))
    if not given.isascii() or not given.isdigit() or int(given) == 0:
        raise UsageError(f"MAX_JOBS should be a positive whole number, but is '{given}'.")
    return int(given)


def run_ninja(
    ninja: Path, folder: Path, jobs: int, progress: Receiver, lock: IO[str]
) -> str | None:
    """Build everything; return None, or ninja's output on failure.

    An interrupt ends ninja and its compilers. If losscli is killed, ninja goes on and keeps the
    build lock until it ends.
    """
    environ = {key: value for key, value in os.environ.items() if key != "MAKEFLAGS"}
    # Errors are recognized in English.
    environ |= {"LC_ALL": "C", "NINJA_STATUS": "[%f/%t] "}
    with subprocess.Popen(
        [ninja, "-j", str(jobs)],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A separate group, so that Ctrl-C reaches it only through us.
        process_group=0,
        pass_fds=[lock.fileno()],
        # losscli loads the built libraries later: no other user may write to them.
        umask=0o022,
    ) as process:
        assert process.stdout is not None
        printed = []
        try:
            for line in process.stdout:
                printed.append(line)
                if _STATUS.match(line):
                    progress(line.rstrip())
            failed = process.wait() != 0
        except BaseException:
            # It ends its compilers, which run in separate groups, and removes unfinished outputs.
            process.terminate()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
        finally:
            status("")
    return "".join(printed) if failed else None
