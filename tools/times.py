"""Prints the slowest tests of the last `make test`, and the time by folder.

It reads pytest's JUnit report. `python -m tools.times --most 10` prints fewer tests.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

REPORT = Path("build/tests.xml")


def times(report: Path) -> dict[tuple[str, str], float]:
    """Return the seconds of each test, by module and name."""
    return {
        (case.get("classname", ""), case.get("name", "")): float(case.get("time", 0))
        for case in ElementTree.parse(report).iter("testcase")
    }


def table(spent: dict[tuple[str, str], float], most: int) -> str:
    folders: dict[str, float] = defaultdict(float)
    for (module, _), seconds in spent.items():
        folders[module.partition(".test_")[0].replace(".", "/")] += seconds
    dearest = sorted(spent.items(), key=lambda item: -item[1])[:most]
    lines = [f"{len(spent)} tests, {sum(spent.values()):.0f} s in all processes together", ""]
    lines += [f"{seconds:8.1f} s  {module}::{name}" for (module, name), seconds in dearest]
    lines += [
        "",
        *(f"{seconds:8.1f} s  {folder}" for folder, seconds in sorted(folders.items())),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=50, help="how many tests to print")
    parser.add_argument("report", nargs="?", type=Path, default=REPORT)
    given = parser.parse_args()
    if not given.report.exists():
        sys.exit(f"{given.report} is not there: run `make test` first")
    print(table(times(given.report), given.most))


if __name__ == "__main__":
    main()
