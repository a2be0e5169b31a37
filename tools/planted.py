"""Tests with real runs that a kernel slowed by a tenth is noticed, and noise is not.

    python -m tools.planted [REPEATS] [OPTION OF BENCH]...

Each repeat runs the same code again, then with losscli's kernel slowed: after each timed call the
device waits for a tenth of the call's time in the first run. Compared with the run before,
``losscli compare --fail-on 5%`` has to pass the first, to fail the second, and to name no other
implementation. The exit code is 1 where it does not.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

SLOWED_BY = 0.1
FAIL_ON = "5%"
SLOWED = "custom"
BASE = "PLANTED_BASE"
"""Environment variable that makes a process slow the kernel by the times of this run."""
CASES = (
    *("--loss", "mse,smooth_l1", "--size", "1Kx1K,2Kx2K"),
    *("--impl", "custom,reference,functional", "--max-time", "0.5s"),
)


def plant(base: Path) -> None:
    """Slow the calls of losscli's kernel in this process."""
    from losscli.implementations import IMPLEMENTATIONS
    from losscli.implementations.passes import PassFactory
    from losscli.runs.reading import read_run

    own, make = IMPLEMENTATIONS[SLOWED], PassFactory.make
    seconds = {
        (result.case.name, result.pass_): result.seconds.median
        for result in read_run(base, "bench").results
        if result.implementation == SLOWED and result.seconds
    }

    def bind(case):
        function = own.bind(case)

        def bound(prediction, target):
            return function(prediction, target)

        bound.case = case  # type: ignore[attr-defined]
        return bound

    def make_slow(factory: Any, function: Any) -> Any:
        timed: Any = make(factory, function)
        if not hasattr(function, "case"):
            return timed
        wait = _waits(function.case.device, SLOWED_BY * seconds[function.case.name, factory.pass_])

        class Slow(type(timed)):  # type: ignore[misc]
            def __call__(self):
                super().__call__()
                wait()

        timed.__class__ = Slow
        return timed

    IMPLEMENTATIONS[SLOWED] = replace(own, bind=bind)
    PassFactory.make = make_slow  # type: ignore[assignment, method-assign]


def _waits(device, seconds):
    """Return a function that makes a device wait."""
    if device == "cpu":

        def spin():
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

        return spin
    import torch

    from losscli.implementations.timer import CudaTimer

    cycles = int(seconds * CudaTimer(device).cycles_per_second)
    return lambda: torch.cuda._sleep(cycles)


def bench(output: Path, options: list[str], base: Path | None = None) -> Path:
    """Measure in a fresh process."""
    environ = os.environ | ({BASE: str(base)} if base else {})
    command = [sys.executable, "-m", "tools.planted", *options, "--format", "json"]
    command += ["-o", str(output)]
    subprocess.run(command, env=environ, check=True, stderr=subprocess.DEVNULL)
    return output


def compare(base: Path, new: Path) -> tuple[int, set[str]]:
    """Return the exit code of `losscli compare`, and what it calls slower."""
    command = [sys.executable, "-m", "losscli", "compare", str(base), str(new)]
    command += ["--fail-on", FAIL_ON, "--no-fail-on-undecided", "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    (comparison,) = json.loads(done.stdout)["comparisons"]
    rows = comparison["rows"]
    off = sorted(abs(row["ratio"] - 1) for row in rows if row["control"])
    slower = [row for row in rows if row["regression"]]
    told = len([row for row in rows if row["implementation"] == SLOWED])
    print(
        f"  exit {done.returncode}, {len(slower)} of {told} rows slower, noise "
        f"{comparison['noise']:.1%}, controls off by {off[len(off) // 2]:.1%} to {off[-1]:.1%}"
    )
    return done.returncode, {row["implementation"] for row in slower}


def plant_if_asked() -> None:
    if BASE in os.environ:
        plant(Path(os.environ[BASE]))


def main(repeats: int, options: list[str]) -> int:
    """Repeat, and return 1 if any comparison is wrong."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        base = bench(Path(folder, "0.json"), options)
        for repeat in range(1, repeats + 1):
            print(f"repeat {repeat}: noise, then slower by a tenth", flush=True)
            new = bench(Path(folder, f"{repeat}.json"), options)
            slow = bench(Path(folder, f"{repeat}-slow.json"), options, base)
            wrong += [f"{repeat}: noise failed"] * (compare(base, new) != (0, set()))
            wrong += [f"{repeat}: slower passed"] * (compare(base, slow) != (1, {SLOWED}))
            base = new
    print("\n".join(wrong) or f"{repeats} repeats, all came out right")
    return 1 if wrong else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["worker"]:  # one of the processes that bench starts
        plant_if_asked()
        sys.argv[1:] = given[1:]
        runpy.run_module("losscli.bench.worker", run_name="__main__")
        sys.exit()
    if given and not given[0].isdigit() and "-o" in given:
        from losscli.bench import processes

        processes.COMMAND = (sys.executable, "-m", "tools.planted", "worker")
        plant_if_asked()
        from losscli.cli.main import run

        sys.exit(run(["bench", *given]))
    repeats = int(given.pop(0)) if given and given[0].isdigit() else 20
    sys.exit(main(repeats, given or list(CASES)))
