"""Runs the kernels under compute-sanitizer: `python -m tools.sanitize`, or `make sanitize`.

memcheck finds accesses out of bounds, racecheck races on a block's shared memory, initcheck reads
of uninitialised memory, and synccheck barriers that not all threads reach. Each tool prints a line;
the exit code is 1 if one finds something, 4 without compute-sanitizer or a GPU. `--tool NAME` runs
only that tool, `--rows` makes only calls of row-wise losses, `--parts` only those of rows in parts,
`--calls` makes the calls without a tool. `--jobs N` distributes a tool's calls over N processes: a
tool mostly uses the CPU.

racecheck is slow: it watches the fewest and smallest calls that together launch every kernel in
each layout. `--share K/N` makes part K of N of each tool's calls, and `--limit SECONDS` ends a
tool, so several runs can share the work. With `-o FILE` each adds what it covered to FILE, and
`--covered FILE ...` prints what all have covered; its exit code is 1 if a tool found something or a
kernel is left.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import sanitize_coverage as coverage
from .every_call import PARTS, ROWS, every_call, loss_of, prepare
from .sanitize_coverage import cost, fewest, kernels_of

EXIT_FOUND, EXIT_UNFIT = 1, 4
# Only what is compiled from csrc: PyTorch's kernels cost most of the time and are not in question.
OURS = ("--kernel-regex", "kns=losscli")
TOOLS: dict[str, tuple[str, ...]] = {
    "memcheck": OURS,
    "racecheck": OURS,
    # What PyTorch's kernels write counts as written only where they are watched as well.
    "initcheck": (),
    "synccheck": OURS,
}

MANY_ROWS = 100
"""Rows from which on a block takes several."""
SLOW = ("racecheck",)
"""The tools that watch the fewest calls which reach each kernel."""


def make_all(only: str, numbers: Sequence[int] | None = None) -> int:
    """Make every call, or those of some numbers; the sanitizer reports CUDA errors."""
    import torch

    prepare(only)
    wanted = None if numbers is None else {*numbers}
    count = 0
    for number, (call, run) in enumerate(every_call(only)):
        if wanted is not None and number not in wanted:
            continue
        try:
            run()
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"{call}: {error}", file=sys.stderr)
            return 1
        print(f"made {number}", flush=True)
        count += 1
    print(f"{count} calls")
    return 0


def profile_all(only: str, path: Path) -> int:
    """Make every call without a tool, and write which kernels each launches."""
    prepare(only)
    reached = [kernels_of(loss_of(call), run) for call, run in every_call(only)]
    path.write_text(json.dumps(reached), encoding="utf-8")
    return 0


@dataclass(frozen=True)
class Plan:
    """All calls, with the kernels that each launches."""

    only: str
    calls: list[Any]
    reached: list[list[str]]

    @classmethod
    def of(cls, only: str, *, profiled: bool) -> Plan:
        """Return the calls; ``profiled``: with their kernels, from another process."""
        made = [call for call, _ in every_call(only)]
        reached: list[list[str]] = [[] for _ in made]
        if profiled:
            with tempfile.TemporaryDirectory(prefix="sanitize-") as folder:
                path = Path(folder) / "kernels.json"
                words = ["--profile", str(path), *_words(only)]
                done = subprocess.run([sys.executable, "-m", "tools.sanitize", *words], check=False)
                if done.returncode == 0:
                    reached = json.loads(path.read_text(encoding="utf-8"))
            if not any(reached):
                told = "the profiler names no kernels, so every tool watches all calls"
                print(f"sanitize: {told}", file=sys.stderr)
        return cls(only, made, reached)

    def numbers(self, tool: str, *, every: bool) -> list[int]:
        """Return the numbers of the calls that a tool watches."""
        if every or tool not in SLOW:
            return list(range(len(self.calls)))
        # A kernel is watched in each layout, and where its blocks take one row and several.
        wanted = [
            [
                f"{kernel} {call.layout} {getattr(call, 'rows', 0) >= MANY_ROWS}"
                for kernel in kernels
            ]
            for call, kernels in zip(self.calls, self.reached, strict=True)
        ]
        return fewest(wanted, list(map(cost, self.calls)))


def _words(only: str) -> list[str]:
    return [f"--{only}"] if only else []


def find_sanitizer() -> str | None:
    """Return compute-sanitizer from the PATH, or from nvcc's folder."""
    places = [os.environ.get("PATH", os.defpath)]
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    nvcc = shutil.which("nvcc")
    if nvcc:
        homes.append(str(Path(nvcc).resolve().parents[1]))
    for home in [*filter(None, homes), "/usr/local/cuda"]:
        places += [f"{home}/bin", f"{home}/compute-sanitizer"]
    return shutil.which("compute-sanitizer", path=os.pathsep.join(places))


def run_tool(
    sanitizer: str, name: str, plan: Plan, numbers: Sequence[int], *, jobs: int, limit: float
) -> tuple[bool, list[int]]:
    """Run calls under one tool and print its line.

    Returns:
        Whether it found nothing, and the numbers of the calls that it finished in time.
    """
    # The allocator of PyTorch hands out parts of large blocks, whose ends no tool sees.
    environ = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    command = [sanitizer, "--tool", name, "--error-exitcode", str(EXIT_FOUND), *TOOLS[name]]
    command += [sys.executable, "-m", "tools.sanitize", "--calls", *_words(plan.only)]
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="sanitize-"))
    for job in range(jobs):
        (folder / f"{job}.json").write_text(json.dumps(numbers[job::jobs]), encoding="utf-8")
    running = [
        subprocess.Popen(
            [*command, "--numbers", str(folder / f"{job}.json")],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for job in range(jobs)
    ]

    def follow(job: int) -> tuple[str, bool]:
        """Return the output of a process, and whether it ended by itself."""
        process = running[job]
        try:
            left = limit - (time.monotonic() - started) if limit else None
            return process.communicate(timeout=left)[0], True
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0], False

    # Each is read by a thread: one whose pipe is full would wait for those before it.
    with ThreadPoolExecutor(jobs) as readers:
        outputs = list(readers.map(follow, range(jobs)))
    shutil.rmtree(folder)
    seconds = time.monotonic() - started
    made: list[int] = []
    count = 0
    for done, (output, ended) in zip(running, outputs, strict=True):
        lines = output.splitlines()
        line = next((line for line in lines if line.endswith(" calls")), None)
        known = [int(each[5:]) for each in lines if re.fullmatch("made [0-9]+", each)]
        made += known
        if done.returncode or line is None if ended else any(map(_is_finding, lines)):
            _print_failure(name, output, done.returncode, line, seconds)
            return False, made
        count += int(line.split()[0]) if ended and line else len(known)
    finished = all(ended for _, ended in outputs)
    state = "clean" if finished else f"clean so far, ended after {limit:.0f} s"
    print(f"{name}: {state}, {count} calls in {seconds:.0f} s", flush=True)
    return True, made


def _is_finding(line: str) -> bool:
    """Tell whether a tool's line reports an error."""
    quiet = ("COMPUTE-SANITIZER", "SUMMARY: 0 ", "Target application")
    return len(line) > 12 and line.startswith("=========") and not any(w in line for w in quiet)


def _print_failure(name: str, output: str, code: int, made: str | None, seconds: float) -> None:
    """Print a tool's finding, and keep all that it wrote."""
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"sanitize-{name}-", suffix=".log", delete=False
    ) as log:
        log.write(output)
    lines = output.splitlines()
    reported = [line for line in lines if line.startswith("=========") and len(line) > 12]
    summary = next((line for line in reversed(lines) if "SUMMARY" in line), "")
    what = " | ".join(line.strip("= ") for line in [*reported[1:4], summary] if line)
    last = what or (lines[-1] if lines else f"exit code {code}")
    made = made or "the calls did not finish"
    print(f"{name}: FAILED ({made}, {seconds:.0f} s): {last}; all of it in {log.name}", flush=True)


def _share(text: str) -> tuple[int, int]:
    """Read ``K/N``."""
    found = re.fullmatch("([0-9]{1,4})/([0-9]{1,4})", text)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"'{text}' is not a share. Write 1/4, 2/4, ... or 4/4.")
    return int(found[1]), int(found[2])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.sanitize")
    parser.add_argument("--calls", action="store_true", help="make the calls, without a tool")
    parser.add_argument("--tool", choices=TOOLS, action="append", help="run this tool alone")
    group = parser.add_mutually_exclusive_group()
    for only, of in ((ROWS, "losses over rows"), (PARTS, "rows whose classes are in parts")):
        group.add_argument(
            f"--{only}", dest="only", action="store_const", const=only, help=f"only {of}"
        )
    parser.set_defaults(only="")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the calls")
    parser.add_argument(
        "--share", type=_share, default=(1, 1), metavar="K/N", help="make part K of N of the calls"
    )
    parser.add_argument(
        "--every", action="store_true", help="have racecheck watch every call, not the fewest"
    )
    parser.add_argument(
        "--limit", type=float, default=0.0, metavar="SECONDS", help="end each tool after SECONDS"
    )
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="FILE", help="add what was covered to FILE"
    )
    parser.add_argument(
        "--covered", type=Path, nargs="+", metavar="FILE", help="tell what runs have covered"
    )
    parser.add_argument("--numbers", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--profile", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    if given.covered:
        together = coverage.read(given.covered)
        for one in together.values():
            print("\n".join(one.told()))
        complete = all(one.clean and not one.missing for one in together.values())
        return 0 if complete and {*together} == {*TOOLS} else EXIT_FOUND
    import torch

    sanitizer = find_sanitizer()
    if not torch.cuda.is_available():
        print("sanitize: torch finds no GPU; run this where there is one", file=sys.stderr)
        return EXIT_UNFIT
    if given.profile:
        return profile_all(given.only, given.profile)
    if given.calls:
        numbers = json.loads(given.numbers.read_text(encoding="utf-8")) if given.numbers else None
        return make_all(given.only, numbers)
    if not sanitizer:
        print(
            "sanitize: there is no compute-sanitizer on the PATH, under CUDA_HOME or beside nvcc; "
            "install the CUDA toolkit's sanitizer",
            file=sys.stderr,
        )
        return EXIT_UNFIT
    prepare(given.only)
    tools = given.tool or list(TOOLS)
    plan = Plan.of(given.only, profiled=bool(given.output or {*SLOW} & {*tools}))
    clean = True
    for name in tools:
        every = plan.numbers(name, every=given.every)
        mine = coverage.share(every, *given.share)
        started = time.monotonic()
        right, made = run_tool(sanitizer, name, plan, mine, jobs=given.jobs, limit=given.limit)
        clean &= right
        facts = {
            "seconds": time.monotonic() - started,
            "clean": right,
            "shares": ["/".join(map(str, given.share))],
        }
        covered = coverage.of_calls(name, made, mine, plan.calls, plan.reached, every, facts)
        for line in covered.told()[1:]:
            print(line, flush=True)
        if given.output:
            coverage.write(given.output, covered)
    return 0 if clean else EXIT_FOUND


if __name__ == "__main__":
    sys.exit(main())
