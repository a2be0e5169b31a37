"""Write the tables of the README and of the documents from docs/results and from the program.

A table is between `<!-- KIND: FILE key=value,value ... -->` and `<!-- end -->`. The kinds of tables
of a run are functions of `times.py` and `baselines.py`; the keys, `loss`, `dtype`, `size`, `pass`,
`layout` and `grad_output`, select results. Without keys for them, tables show contiguous operands
and a grad_output of 1; `axes` shows the others. The kinds of `outcomes.py` are for mutations and
third-party files, those of `program.py` for the program itself; `functions` takes a unit in place
of a file, the others `all`. If kernels have changed since a record, the commit at which it was
measured is below the table; `ages.py` finds that out from git.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))

from docs import ages, baselines, outcomes, program, times  # noqa: E402 - run by its path
from losscli.cases.axes import CONTIGUOUS, format_grad_output  # noqa: E402
from losscli.runs.reading import read_run  # noqa: E402
from losscli.runs.records import BenchResult, Run  # noqa: E402
from losscli.units import format_size  # noqa: E402

RESULTS = DOCS / "results"
DOCUMENTS = (
    DOCS.parent / "README.md",
    DOCS / "training-code.md",
    DOCS / "verification.md",
    DOCS / "judging.md",
    DOCS / "isolation.md",
    DOCS / "reference.md",
    DOCS / "performance.md",
    DOCS / "sharded.md",
    DOCS / "kernel-notes.md",
    RESULTS / "README.md",
)
MARKER = re.compile(
    r"<!-- (?P<kind>\w+): (?P<file>\S+)(?P<keys>( \w+=\S+)*) -->.*?<!-- end -->", re.DOTALL
)


def _by_name(*kinds: Callable[..., str]) -> dict[str, Callable[..., str]]:
    return {kind.__name__: kind for kind in kinds}


OF_PROGRAM = _by_name(
    program.walls,
    program.reasons,
    program.facets,
    program.jobs,
    program.checks,
)
"""Tables of what the program says, beside that of its functions, which takes a unit."""
OF_OUTCOMES = _by_name(outcomes.mutations, outcomes.wild, outcomes.shares)
TESTED = _by_name(baselines.ratios, baselines.axes, baselines.slower)
"""Kinds of tables that depend on all configurations."""
WHOLE = (*TESTED, times.environment.__name__)
"""Kinds of tables that show all layouts and all values of grad_output."""
OF_RUNS = TESTED | _by_name(
    times.environment,
    times.bench,
    times.losses,
    times.limits,
    times.floors,
    times.linear,
    times.sharded,
    times.rows,
    times.host,
    times.strategies,
)
USUAL = {"layout": CONTIGUOUS, "grad_output": "1"}


def with_tables(text: str) -> str:
    """Return a document with its tables made again."""

    def made_again(match: re.Match[str]) -> str:
        opening = match[0].partition(" -->")[0] + " -->"
        keys = dict(key.split("=", 1) for key in match["keys"].split())
        table, age = _table(match["kind"], match["file"], keys)
        return "\n\n".join(filter(None, (opening, table, age, "<!-- end -->")))

    return MARKER.sub(made_again, text)


def _table(kind: str, file: str, keys: dict[str, str]) -> tuple[str, str]:
    """Return a table, and the sentence on the age of its figures or nothing."""
    if kind == "ages":
        return ages.table(), ""
    if kind in OF_PROGRAM:
        return OF_PROGRAM[kind](), ""
    if kind == program.functions.__name__:
        return program.functions(file), ""
    if kind in OF_OUTCOMES:
        record = json.loads((RESULTS / file).read_text())
        of_kernels = kind == outcomes.mutations.__name__
        losses = ages.losses_of(record) if of_kernels else []
        age = aged(file, losses, record["environment"]) if of_kernels else ""
        return OF_OUTCOMES[kind](record), age
    if keys and kind in TESTED:
        raise ValueError(f"{kind}: cells are tested all at once, so there are no keys")
    run = only(load(RESULTS / file), keys if kind in WHOLE else USUAL | keys)
    if kind == times.environment.__name__:
        return times.environment(run), ""
    losses = [r.case.loss for r in run.results if isinstance(r, BenchResult)]
    return OF_RUNS[kind](run), aged(file, losses, run.environment)


def aged(file: str, losses: Iterable[str], facts: Mapping[str, Any]) -> str:
    """Return the sentence that names the kernels which changed since a record; or nothing."""
    return ages.sentence(file, losses, ages.device_of(dict(facts)))


def load(path: Path) -> Run:
    """Read the record of a bench."""
    return read_run(path, "bench")


def only(run: Run, keys: Mapping[str, str]) -> Run:
    """Return a run with the results that the keys of a marker choose."""

    def facts(result: BenchResult) -> dict[str, str]:
        case = result.case
        return {
            "loss": case.loss,
            "dtype": case.dtype,
            "size": format_size(case.size),
            "pass": result.pass_,
            "layout": case.layout,
            "grad_output": format_grad_output(case.grad_output),
        }

    results = (r for r in run.results if isinstance(r, BenchResult))
    wanted = {key: value.split(",") for key, value in keys.items()}
    chosen = tuple(r for r in results if all(facts(r).get(k) in v for k, v in wanted.items()))
    if not chosen:
        raise ValueError(f"no result has {dict(keys)}")
    return replace(run, results=chosen)


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(with_tables(document.read_text()))
