"""Counts how often a ratio's interval contains the next run's: `python -m tools.interval_coverage`.

It runs `losscli bench` several times in succession. A pair is a case, pass and implementation in
two successive runs. It is covered if the interval of the ratio to the reference in one run contains
the other run's ratio. Ctrl-C ends the runs; what was found is written.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from losscli.compare.row_keys import key
from losscli.runs.measurements import Speedup
from losscli.runs.reading import read_run
from losscli.runs.records import BenchResult, Run

REFERENCE = "reference"
WANTED = 0.9


def ratios(run: Run) -> dict[object, tuple[str, Speedup]]:
    """Return each ratio to the reference by its key, with a name."""
    return {
        key(r): (f"{r.case.name}, {r.implementation}, {r.pass_}, {r.mode}", r.ratios[REFERENCE])
        for r in run.results
        if isinstance(r, BenchResult) and REFERENCE in r.ratios
    }


def half_width(ratio: Speedup) -> float:
    return math.sqrt(ratio.high / ratio.low) - 1


def pairs(runs: Sequence[Run]) -> Iterator[tuple[str, Speedup, Speedup]]:
    """Yield the ratios of the cells that successive runs share."""
    for one, other in pairwise(map(ratios, runs)):
        for cell, (name, ratio) in one.items():
            if cell in other:
                yield name, ratio, other[cell][1]


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the number of covered pairs, the median half-width, and the other pairs."""
    found = list(pairs(runs))
    missed = [pair for pair in found if not pair[1].low <= pair[2].value <= pair[1].high]
    widths = [half_width(ratio) for run in runs for _, ratio in ratios(run).values()]
    return {
        "runs": len(runs),
        "pairs": len(found),
        "covered": len(found) - len(missed),
        "coverage": 1 - len(missed) / len(found) if found else None,
        "median_half_width": median(widths) if widths else None,
        "missed": [
            {"cell": name, "low": one.low, "high": one.high, "next": other.value}
            for name, one, other in missed
        ],
        "command": list(runs[0].command) if runs else [],
        "environment": dict(runs[0].environment) if runs else {},
    }


def told(found: dict[str, Any]) -> str:
    if found["coverage"] is None:
        return f"{found['runs']} runs, no pairs yet"
    return (
        f"{found['runs']} runs: {found['covered']} of {found['pairs']} pairs covered "
        f"({found['coverage']:.1%}), median half-width {found['median_half_width']:.1%}"
    )


def measure(count: int, options: Sequence[str]) -> Iterator[Run]:
    """Yield runs of `losscli bench` as they finish."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            path = Path(folder, f"{number}.json")
            command = [sys.executable, "-m", "losscli", "bench", *options]
            command += ["--format", "json", "-o", str(path)]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"losscli bench ended with {done.returncode}:\n{done.stderr}")
            yield read_run(path, "bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 where too few pairs are covered, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [OPTION]... [-- BENCH]")
    parser.add_argument("--runs", type=int, default=6, help="Run the bench so often.")
    parser.add_argument("--device", default="auto", help="Measure on this device.")
    parser.add_argument("-o", dest="output", type=Path, help="Write the result to this file.")
    parser.add_argument("bench", nargs="*", help="Options of losscli bench, after --.")
    given = parser.parse_args(arguments)
    runs: list[Run] = []
    interrupted = False
    try:
        for run in measure(given.runs, ["--device", given.device, *given.bench]):
            runs.append(run)
            print(told(summary(runs)), flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("interrupted; what was finished counts", file=sys.stderr)
    found = summary(runs)
    for pair in found["missed"]:
        print(f"  {pair['cell']}: {pair['low']:.3g} to {pair['high']:.3g}, then {pair['next']:.3g}")
    if given.output and runs:
        given.output.write_text(json.dumps(found, indent=2) + "\n")
    if interrupted:
        return 130
    return 0 if found["coverage"] is not None and found["coverage"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
