"""Breaks losscli's Python on purpose, an expression at a time, and reports what no test notices.

    python -m tools.mutate_python --most 200 -o mutants.json

The mutants are those of PACKAGES: another comparison, `or` for `and`, `-` for `+`, a number plus
one, a condition without its `not`. The text of an expression decides whether it is chosen, so runs
can be repeated. First the tests run with coverage, unless `--coverage` names an earlier run's. Then
each mutant gets the tests that reach its line, the quickest of each file first, until one fails.
Tests beyond `--seconds` are skipped and counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import coverage

PACKAGES = ("truth", "verify", "compare", "bench")
CHECKOUT = Path(__file__).parents[1]
SELECTION = "not slow and not gpu"
HANG_SECONDS = 120.0
APART = ("tests/sharded/", "tests/ranks/")
"""Tests that start processes, which takes longer than all others of a mutant together."""

COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
FUNCTIONS = {"max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """An expression and its replacement."""

    file: str
    line: int
    start: int
    """Where the expression begins in the file, in bytes."""
    end: int
    old: str
    new: str
    text: str
    """The line."""

    @property
    def name(self) -> str:
        """The name, which does not depend on the line."""
        return f"{self.file}: {self.old} -> {self.new} in {self.text}"

    def applied(self, source: bytes) -> bytes:
        """Return the file with the mistake."""
        return source[: self.start] + self.new.encode() + source[self.end :]


@dataclass(frozen=True)
class Fate:
    mutant: Mutant
    status: str
    """``killed``, ``survived`` or ``hang``."""
    by: str
    """The test that failed."""
    tests: int
    """How many were tried."""
    left_out: int
    seconds: float


def changed(node: ast.AST) -> ast.expr | None:
    """Return a mistaken expression, if there is one to make."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in COMPARISONS:
            return ast.Compare(left, [COMPARISONS[type(operator)]()], right)
        case ast.BoolOp(ast.And(), values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            return ast.BoolOp(ast.And(), values)
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            return ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() as value):
            return ast.Constant(value + 1)
        case ast.Call(ast.Name(name), arguments, keywords) if name in FUNCTIONS:
            return ast.Call(ast.Name(FUNCTIONS[name]), arguments, keywords)
    return None


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that run, without annotations and those for type checkers."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.JoinedStr):  # before Python 3.12 its parts have no place
                continue
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST):
                yield from expressions(child)


def mutants(file: Path) -> Iterator[Mutant]:
    text = file.read_bytes()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in expressions(ast.parse(text)):
        if (other := changed(node)) is None:
            continue
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        new = f"({ast.unparse(ast.fix_missing_locations(other))})"
        name = str(file.relative_to(CHECKOUT))
        whole = text[starts[node.lineno - 1] : starts[node.lineno]].decode().strip()
        yield Mutant(name, node.lineno, start, end, text[start:end].decode(), new, whole)


def chosen(reached: Mapping[tuple[str, int], Sequence[str]], most: int) -> list[Mutant]:
    """Return mutants of lines that tests reach, as many of each package."""
    found = []
    for package in PACKAGES:
        files = sorted((CHECKOUT / "losscli" / package).rglob("*.py"))
        every = [each for file in files for each in mutants(file)]
        every = [each for each in every if (each.file, each.line) in reached]
        every.sort(key=lambda each: sha256(each.name.encode()).digest())
        found += every[: most // len(PACKAGES)]
    return found


def measure(data: Path) -> None:
    """Run the tests with coverage, by test."""
    options = ["--cov=losscli", "--cov-context=test", "--cov-report="]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m", SELECTION, *options]
    subprocess.run(
        command, cwd=CHECKOUT, env={**os.environ, "COVERAGE_FILE": str(data)}, check=True
    )


def lines_reached(data: Path) -> dict[tuple[str, int], list[str]]:
    """Return the tests that reach each line of the packages."""
    found: dict[tuple[str, int], list[str]] = {}
    read = coverage.CoverageData(str(data))
    read.read()
    for file in read.measured_files():
        name = file.rpartition("/losscli/")[2]
        if not name.startswith(tuple(f"{each}/" for each in PACKAGES)):
            continue
        for line, contexts in read.contexts_by_lineno(file).items():
            tests = sorted({each.partition("|")[0] for each in contexts if each})
            tests = [each for each in tests if not each.startswith(APART)]
            if tests:
                found[f"losscli/{name}", line] = tests
    return found


def in_order(tests: Sequence[str], seconds: Mapping[str, float], most: float) -> list[str]:
    """Return tests, the quickest of each file first, that fit in so many seconds."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: seconds.get(test, 0.1)):
        files.setdefault(test.partition("::")[0], []).append(test)
    rounds = max(map(len, files.values()))
    mixed = [each[i] for i in range(rounds) for each in files.values() if i < len(each)]
    kept, spent = [], 0.0
    for test in mixed:
        if (spent := spent + seconds.get(test, 0.1)) > most and kept:
            break
        kept.append(test)
    return kept


def fate(mutant: Mutant, tests: Sequence[str], total: int, root: Path) -> Fate:
    """Run tests in a copy of the checkout until one fails."""
    file = root / mutant.file
    original = (CHECKOUT / mutant.file).read_bytes()
    file.write_bytes(mutant.applied(original))
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    status, by = "survived", ""
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
        if done.returncode:
            failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
            status, by = "killed", failed[0].split(" - ")[0][7:] if failed else "no test"
    except subprocess.TimeoutExpired:
        status = "hang"
    finally:
        file.write_bytes(original)
    return Fate(mutant, status, by, len(tests), total - len(tests), time.monotonic() - began)


def copy_checkout(root: Path) -> None:
    """Copy the files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0")[:-1]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, root / name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=200, help="how many mutants")
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests for each")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--coverage", type=Path, help="what coverage has left of an earlier run")
    parser.add_argument("--times", type=Path, help="lines of JSON: a test, its seconds")
    parser.add_argument("--only", type=Path, help="a record whose mutants are tried")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="losscli-mutants-") as folder:
        data = given.coverage or Path(folder, "coverage")
        if not given.coverage:
            measure(data)
        reached = lines_reached(data)
        lines = given.times.read_text().splitlines() if given.times else []
        seconds: dict[str, float] = {test: spent for test, spent, *_ in map(json.loads, lines)}
        tried = chosen(reached, given.most)
        if given.only:
            names = {each["name"] for each in json.loads(given.only.read_text())}
            tried = [each for each in chosen(reached, 10**9) if each.name in names]
        roots = [Path(folder, str(job)) for job in range(given.jobs)]
        for root in roots:
            copy_checkout(root)

        def run(mutant: Mutant) -> dict[str, Any]:
            root = roots.pop()
            try:
                tests = reached[mutant.file, mutant.line]
                found = fate(mutant, in_order(tests, seconds, given.seconds), len(tests), root)
            finally:
                roots.append(root)
            print(f"{found.status:8} {found.seconds:4.0f} s  {mutant.name}  {found.by}", flush=True)
            return {"name": mutant.name, **asdict(found)}

        with ThreadPoolExecutor(given.jobs) as pool:
            fates = list(pool.map(run, tried))
    killed = sum(each["status"] != "survived" for each in fates)
    print(f"{killed} of {len(fates)} mutants were found")
    if given.output:
        given.output.write_text(json.dumps(fates, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
