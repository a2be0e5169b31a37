"""The output of ``--dry-run``: the cases of a config, their bytes, and whether they fit."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from losscli.bench.memory_plan import Fitting, MemoryPlan, plan_memory, those_that_fit
from losscli.bench.plan import unavailable
from losscli.cases.axes import FORWARD_BACKWARD, Mode, PassName
from losscli.cases.case import Case
from losscli.cli.running import refuse_empty
from losscli.config.expansion import excluded, expand, those_asked_for
from losscli.config.schema import Config
from losscli.console.streams import emit
from losscli.errors import UnfitError
from losscli.implementations import Implementation, find_implementation, plan_of
from losscli.losses.linear.logits_plan import Plan
from losscli.reasons import Reason
from losscli.render.output import show
from losscli.render.text import lay_out
from losscli.units import format_bytes, format_duration
from losscli.verify.needed_memory import bytes_to_verify, choose_fitting
from losscli.views.document import Side
from losscli.views.phrases import count, short_pass

DOES_NOT_FIT = "does not fit"


def print_cases(config: Config, device: str, free: int) -> None:
    """Print what verifying each case and pass needs and what does not fit; refuse if all do not."""
    listing = _Listing(config, device, free)
    for case, pass_, implementations, _ in listing.groups():
        if case.impossible:
            listing.refuse(case.impossible, case.name, pass_, _names(implementations), "")
            continue
        able, left_out = fitting = choose_fitting(case, pass_, implementations, free)
        size = bytes_to_verify(case, pass_, able or implementations)
        fits = f"left out: {', '.join(left_out)}" if left_out else ""
        row = (case.name, pass_, _names(able or implementations), format_bytes(size))
        listing.add([(*row, fits if able else DOES_NOT_FIT)], size, fitting)
    listing.conclude(("case", "pass", "implementations", "peak memory", ""))


def print_plans(config: Config, device: str, free: int) -> None:
    """Print the planned memory of each case, pass and mode, as `print_cases` does."""
    listing = _Listing(config, device, free)
    for case, pass_, implementations, modes in listing.groups():
        for mode in modes:
            name = short_pass(pass_, mode)
            if why := case.impossible or unavailable(mode, device, case.placement):
                listing.refuse(why, case.name, name, _names(implementations), *[""] * 4)
                continue
            able, _ = fitting = those_that_fit(case, pass_, implementations, free, mode)
            parts = plan_memory(case, pass_, able or implementations, mode)
            logits = plan_of(case, gradients=pass_ == FORWARD_BACKWARD, free=free)
            rows = _planned(case, name, implementations, able, parts, logits)
            listing.add(rows, parts.total, fitting)
    skipped = []
    for reason, rows_of in listing.skipped.items():
        names = ", ".join(f"{name} ({count(n, 'row')})" for name, n in rows_of.items())
        skipped.append(f"skipped {names}: {reason}")
    if not listing.sizes:
        listing.reasons += listing.skipped
    headers = ("case", "pass", "impl", "inputs", "outputs", "temporaries", "total + reserve", "")
    listing.conclude(headers, skipped)


@dataclass
class _Listing:
    config: Config
    device: str
    free: int = 0
    rows: list[tuple[str, ...]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    misfits: int = 0
    """Rows with an implementation that does not fit."""
    runs: int = 0
    """Rows with an implementation that fits."""
    reasons: list[str] = field(default_factory=list)
    skipped: dict[str, Counter[str]] = field(default_factory=dict)
    """Rows that an implementation does not run, by reason and implementation."""

    def groups(self) -> Iterator[tuple[Case, PassName, list[Implementation], tuple[Mode, ...]]]:
        """Yield what runs together: a case, a pass, its implementations, and the modes."""
        for block in self.config.blocks:
            for case, pass_ in itertools.product(expand(block, self.device), block.passes):
                able = []
                for name in those_asked_for(block, case, pass_):
                    implementation = find_implementation(name)
                    if reason := implementation.unavailable(case):
                        self.skipped.setdefault(str(reason), Counter())[name] += 1
                    else:
                        able.append(implementation)
                if able:
                    yield case, pass_, able, block.timing.mode

    def refuse(self, why: Reason, *cells: str) -> None:
        self.rows.append((*cells, str(why)))
        self.reasons.append(str(why))

    def add(self, rows: Iterable[tuple[str, ...]], size: int, fitting: Fitting) -> None:
        able, left_out = fitting
        self.rows += rows
        self.sizes.append(size)
        self.misfits += bool(left_out)
        self.runs += bool(able)
        self.reasons += [] if able else [str(reason) for reason in left_out.values()]

    def conclude(self, headers: Sequence[str], skipped: Sequence[str] = ()) -> None:
        """Print the table, its number of rows and the exclusions; refuse if nothing can run."""
        figures: list[Side] = ["right"] * (len(headers) - 4)
        if self.rows:
            emit(lay_out(headers, self.rows, align=["left", "left", "left", *figures, "left"]))
        for line in skipped:
            show(line)
        rules = excluded(self.config, self.device)
        if not self.runs and not self.reasons:
            refuse_empty(rules)
        largest, free = format_bytes(max(self.sizes, default=0)), format_bytes(self.free)
        misfits = f"{self.misfits or 'none'} too large for the {free} free on {self.device}"
        emit(f"{count(len(self.sizes), 'row')} to run, the largest {largest}; {misfits}")
        for rule in rules:
            show(str(rule))
        if not self.runs:
            raise UnfitError(f"nothing could run: {self.reasons[0]}.")


def _planned(
    case: Case,
    pass_: str,
    implementations: Sequence[Implementation],
    able: Sequence[Implementation],
    parts: MemoryPlan,
    logits: Plan | None,
) -> Iterator[tuple[str, ...]]:
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
    """Print the name of each case; UsageError if there is none."""
    if not (names := dict.fromkeys(case.name for case, *_ in _Listing(config, device).groups())):
        refuse_empty(excluded(config, device))
    for name in names:
        show(name)
