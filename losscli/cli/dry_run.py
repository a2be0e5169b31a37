"""The output of ``--dry-run``: the cases of a config, their bytes, and whether they fit."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from losscli.bench.memory_plan import MemoryPlan, plan_memory, those_that_fit
from losscli.bench.plan import unavailable
from losscli.cases.axes import FORWARD_BACKWARD, Mode, PassName
from losscli.cases.case import Case
from losscli.cli.running import refuse_empty
from losscli.config.expansion import asked_for, excluded, expand
from losscli.config.schema import Config
from losscli.console.streams import emit
from losscli.errors import UnfitError
from losscli.implementations import Implementation, find_implementation, plan_of
from losscli.losses.linear.plan import Plan
from losscli.reasons import Reason
from losscli.render.layout import lay_out
from losscli.render.output import show
from losscli.units import format_bytes, format_duration
from losscli.views.bench import SHORT_PASSES
from losscli.views.document import Side
from losscli.views.phrases import count, with_mode

DOES_NOT_FIT = "does not fit"

Fit = Callable[
    [Case, PassName, Sequence[Implementation], int], tuple[list[Implementation], dict[str, Reason]]
]
"""``f(case, pass, implementations, free)``: those that fit, and by name why others do not."""
NeededBytes = Callable[[Case, PassName, Sequence[Implementation]], int]
"""``f(case, pass, implementations)``: the most bytes that running them takes, inputs included."""


def print_cases(config: Config, device: str, needed: NeededBytes, fit: Fit, free: int) -> None:
    """Print a row for each case and pass: what would run, its bytes, and what does not fit.

    Raises UsageError or UnfitError where nothing can run, as the run would.
    """
    rows, tally = [], _Tally()
    for case, pass_, implementations, _ in _plan(config, device, tally):
        if case.impossible:
            rows.append((case.name, pass_, _names(implementations), "", str(case.impossible)))
            tally.reasons.append(str(case.impossible))
            continue
        able, left_out = fit(case, pass_, implementations, free)
        size = needed(case, pass_, able or implementations)
        fits = f"left out: {', '.join(left_out)}" if left_out else ""
        row = (case.name, pass_, _names(able or implementations), format_bytes(size))
        rows.append((*row, fits if able else DOES_NOT_FIT))
        tally.add(size, able, left_out)
    headers = ("case", "pass", "implementations", "bytes", "")
    _conclude(config, device, tally, free, headers, rows)


def print_plans(config: Config, device: str, free: int) -> None:
    """Print the planned memory of each case, pass and mode; for the rest see `print_cases`."""
    rows: list[tuple[str, ...]] = []
    tally = _Tally()
    for case, pass_, implementations, modes in _plan(config, device, tally):
        for mode in modes:
            name = with_mode(SHORT_PASSES[pass_], mode)
            if why := case.impossible or unavailable(mode, device, case.placement):
                rows.append((case.name, name, _names(implementations), *[""] * 4, str(why)))
                tally.reasons.append(str(why))
                continue
            able, left_out = those_that_fit(case, pass_, implementations, free, mode)
            parts = plan_memory(case, pass_, able or implementations, mode)
            backward = pass_ == FORWARD_BACKWARD
            logits = plan_of(case, gradients=backward, free=free)
            rows += _planned(case, name, implementations, able, parts, logits)
            tally.add(parts.total, able, left_out)
    skipped = []
    for reason, rows_of in tally.skipped.items():
        names = ", ".join(f"{name} ({count(n, 'row')})" for name, n in rows_of.items())
        skipped.append(f"skipped {names}: {reason}")
    if not tally.sizes:
        tally.reasons += tally.skipped
    headers = ("case", "pass", "impl", "inputs", "outputs", "temporaries", "bytes", "")
    _conclude(config, device, tally, free, headers, rows, skipped)


@dataclass
class _Tally:
    sizes: list[int] = field(default_factory=list)
    """Bytes of each row that is planned."""
    misfits: int = 0
    """Rows with an implementation that does not fit."""
    runs: int = 0
    """Rows with an implementation that fits."""
    reasons: list[str] = field(default_factory=list)
    skipped: dict[str, Counter[str]] = field(default_factory=dict)
    """Rows that an implementation does not run, by reason and implementation."""

    def add(
        self, size: int, able: Sequence[Implementation], left_out: Mapping[str, object]
    ) -> None:
        """Count a planned row, with the implementations that fit and the reasons of the others."""
        self.sizes.append(size)
        self.misfits += bool(left_out)
        self.runs += bool(able)
        self.reasons += [] if able else [str(reason) for reason in left_out.values()]


def _conclude(
    config: Config,
    device: str,
    tally: _Tally,
    free: int,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    skipped: Sequence[str] = (),
) -> None:
    """Print the table, the number of rows and the excluded ones; refuse if nothing can run."""
    words: list[Side] = ["left"] * 3
    figures: list[Side] = ["right"] * (len(headers) - 4)
    if rows:
        emit(lay_out(headers, rows, align=[*words, *figures, "left"]))
    for line in skipped:
        show(line)
    rules = excluded(config, device)
    if not tally.runs and not tally.reasons:
        refuse_empty(rules)
    largest = format_bytes(max(tally.sizes, default=0))
    emit(
        f"{count(len(tally.sizes), 'row')} to run, the largest {largest}; "
        f"{tally.misfits or 'none'} too large for the {format_bytes(free)} free on {device}"
    )
    for rule in rules:
        show(str(rule))
    if not tally.runs:
        raise UnfitError(f"nothing could run: {tally.reasons[0]}.")


def _planned(
    case: Case,
    pass_: str,
    implementations: Sequence[Implementation],
    able: Sequence[Implementation],
    parts: MemoryPlan,
    logits: Plan | None,
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each implementation; the first row has the shared cells."""
    inputs, outputs, total = map(format_bytes, (parts.inputs, parts.outputs, parts.total))
    names = (case.name, pass_)
    for implementation in implementations:
        held = format_bytes(implementation.temporary_bytes(case))
        fits = "" if implementation in able else DOES_NOT_FIT
        if logits and implementation.temporaries == 0:
            held = format_bytes(logits.bytes)
            fits = "; ".join(filter(None, [fits, str(logits)]))
        yield (*names, implementation.name, inputs, outputs, held, total, fits)
        names, inputs, outputs, total = ("", ""), "", "", ""


def duration(seconds: float) -> str:
    """Return the line on how long a run may take."""
    return f"takes about {format_duration(seconds)}, without building kernels that are missing"


def _names(implementations: Sequence[Implementation]) -> str:
    return ", ".join(implementation.name for implementation in implementations)


def print_names(config: Config, device: str) -> None:
    """Print the name of each case, a line each; UsageError if none is left."""
    names = dict.fromkeys(case.name for case, *_ in _plan(config, device, _Tally()))
    if not names:
        refuse_empty(excluded(config, device))
    for name in names:
        show(name)


def _plan(
    config: Config, device: str, tally: _Tally
) -> Iterator[tuple[Case, PassName, list[Implementation], tuple[Mode, ...]]]:
    """Yield groups that run side by side: a case, a pass, its implementations, and the modes."""
    for block in config.blocks:
        for case, pass_ in itertools.product(expand(block, device), block.passes):
            able = []
            for name in block.implementations:
                if not asked_for(block, case, name, pass_):
                    continue
                implementation = find_implementation(name)
                if reason := implementation.unavailable(case):
                    tally.skipped.setdefault(str(reason), Counter())[name] += 1
                else:
                    able.append(implementation)
            if able:
                yield case, pass_, able, block.timing.mode
