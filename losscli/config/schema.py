"""A config as frozen data: a YAML file, its `extends` and the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

from losscli.cases import axes
from losscli.implementations import CUSTOM
from losscli.losses import Reduction, Shape, Spec
from losscli.losses.rows.spec import LOGITS, VECTORS, Content
from losscli.ranks.placements import WHOLE, Placement
from losscli.units import format_size


@dataclass(frozen=True)
class LossChoice:
    """A loss and its parameter values; several values make several cases."""

    name: str
    parameters: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


ALL_WEIGHTED, ALL_ROWS, ALL_LINEAR = "weighted", "rows", "linear"
"""In a list of losses: every weighted, row-wise and fused linear loss, in all forms."""
OFF_DEFAULT = "off_default"
ROWS_OFF_DEFAULT, LINEAR_OFF_DEFAULT = "rows_off_default", "linear_off_default"
"""In a list of losses: each unnamed loss, or those of a group, with non-default parameters."""
ROWS_HOLDING: Mapping[str, Content] = {"rows_of_logits": LOGITS, "rows_of_vectors": VECTORS}
"""In a list of losses: those of ``rows`` with such rows, for which sizes are meaningful."""


def off_default(spec: Spec) -> dict[str, float]:
    """Return non-default values for all parameters."""
    return {parameter.name: parameter.off_default for parameter in spec.parameters}


PROCESSES = {"cpu": 4, "cuda": 3}
"""The default number of processes. With 3, Student's quantile makes intervals 1.5 times as wide as
with 4; with more, a run mostly starts processes and repeats checks. On a GPU each process has its
own context and compiles again."""
MOST_PROCESSES = 100


@dataclass(frozen=True)
class Inputs:
    """How to make input values."""

    distribution: tuple[axes.Distribution, ...] = ("uniform",)
    scale: float = 1.0
    """Multiplies every prediction."""
    seed: int = 0


@dataclass(frozen=True)
class Timing:
    """When to stop sampling a case, in seconds."""

    min_time: float = 0.2
    max_time: float = 10.0
    confidence: float = 0.01
    """Relative half-width of the median's confidence interval at which sampling stops."""
    cache: axes.Cache = axes.COLD
    mode: tuple[axes.Mode, ...] = (axes.DEVICE,)
    """The modes, run one after the other: ``device`` times a call's work on the device, ``graph``
    the replay of its CUDA graph, ``host`` a loop of calls."""
    processes: int | None = None
    """Number of fresh processes that sample each case and share its time; 1 is the command's own,
    None is the device's number in PROCESSES."""
    budget: float | None = field(default=None, repr=False)
    """The longest time of the whole run; of tables the shortest counts. None is no limit."""

    @property
    def several_processes(self) -> bool:
        """Whether fresh processes are started."""
        return self.processes is not None and self.processes > 1

    def on(self, device: str) -> Timing:
        """Return the timing for a device, with its number of processes."""
        if self.processes is not None:
            return self
        return replace(self, processes=PROCESSES[device.partition(":")[0]])


@dataclass(frozen=True)
class Exclude:
    """Excludes rows that match every given field."""

    loss: str | None = None
    size: Shape | None = None
    dtype: axes.DType | None = None
    reduction: Reduction | None = None
    device: str | None = None
    implementation: str | None = None
    pass_: axes.PassName | None = None
    layout: axes.Layout | None = None
    grad_output: axes.GradOutput | None = None
    reason: str = ""

    @property
    def conditions(self) -> dict[str, object]:
        """The values to match, by config key."""
        found = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in found.items() if k != "reason" and v is not None}

    @property
    def written(self) -> dict[str, object]:
        """The conditions as in a config."""
        return self.conditions | ({"size": format_size(self.size)} if self.size is not None else {})

    def __str__(self) -> str:
        """Return the rule as in a config, without the reason."""
        return "{" + ", ".join(f"{key}: {value}" for key, value in self.written.items()) + "}"


@dataclass(frozen=True)
class Condition:
    """One condition of a filter: ``dtype=bfloat16``, or negated ``dtype!=float64``."""

    axis: str
    """A key of an ``exclude`` rule, a parameter of a loss, ``distribution`` or ``table``."""
    values: tuple[object, ...]
    """Alternatives: a row must match one."""
    negated: bool = False


Filter = tuple[Condition, ...]


@dataclass(frozen=True)
class Tolerance:
    """A looser tolerance for one named case; the table shows it."""

    case: str
    ulp: float


@dataclass(frozen=True)
class Config:
    """All axes of a run, and its timing. Empty ``losses`` means all."""

    title: str = ""
    device: str = "auto"
    losses: tuple[LossChoice, ...] = ()
    sizes: tuple[Shape, ...] = ()
    dtypes: tuple[axes.DType, ...] = ("float32",)
    reductions: tuple[Reduction, ...] = ("mean",)
    passes: tuple[axes.PassName, ...] = axes.PASSES
    grad_outputs: tuple[axes.GradOutput, ...] = (1.0,)
    layouts: tuple[axes.Layout, ...] = (axes.CONTIGUOUS,)
    implementations: tuple[str, ...] = (CUSTOM, "reference")
    inputs: Inputs = Inputs()
    exclude: tuple[Exclude, ...] = ()
    filters: tuple[Filter, ...] = ()
    """The command line's filters: a row must match one."""
    timing: Timing = Timing()
    tolerances: tuple[Tolerance, ...] = ()
    placement: Placement = WHOLE
    """How operands are split over ranks; empty if they are not."""
    ranks: int = 1
    """The number of ranks, from the command line or torchrun."""
    checks: tuple[str, ...] = ()
    """The checks that ``losscli verify`` runs on these cases; empty for all."""
    columns: tuple[str, ...] = ()
    """The columns of `losscli bench`'s tables, by name; empty for the default."""
    tables: tuple[Config, ...] = ()
    """Configs to run instead, one after the other: this config with some keys replaced."""

    @property
    def blocks(self) -> tuple[Config, ...]:
        """The configs to run: the tables, or this one."""
        return self.tables or (self,)

    @property
    def budget(self) -> float:
        """The longest time of the whole run: the shortest of the tables'."""
        given = [block.timing.budget for block in self.blocks]
        return min((each for each in given if each is not None), default=math.inf)

    def changed(self, change: Callable[[Config], Config]) -> Config:
        """Apply a change to this config and each table."""
        return replace(change(self), tables=tuple(map(change, self.tables)))
