"""A config as frozen data: a YAML file, its `extends` and the command line.

A field's name, type and annotation also say how ``losscli.config.keys`` reads its key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal

from losscli.cases import axes
from losscli.implementations import CUSTOM
from losscli.losses import Reduction, Shape, Spec
from losscli.ranks.placements import WHOLE, Placement
from losscli.units import format_size


@dataclass(frozen=True)
class LossChoice:
    """A loss and its parameter values; several values make several cases."""

    name: str
    parameters: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def written(self) -> object:
        """The choice as in a config."""
        parameters = {name: list(values) for name, values in self.parameters.items()}
        return {self.name: parameters} if parameters else self.name


def off_default(spec: Spec) -> dict[str, float]:
    """Return non-default values for all parameters."""
    return {parameter.name: parameter.off_default for parameter in spec.parameters}


PROCESSES = {"cpu": 4, "cuda": 3}
"""The default number of processes. With 3, Student's quantile makes intervals 1.5 times as wide as
with 4; with more, a run mostly starts processes and repeats checks. On a GPU each process needs a
context and compiles again."""
MOST_PROCESSES = 100


@dataclass(frozen=True)
class Inputs:
    """How to make input values."""

    distribution: tuple[axes.Distribution, ...] = ("uniform",)
    scale: Annotated[float, "Factor of every prediction."] = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Timing:
    """When to stop sampling a case, in seconds."""

    min_time: Annotated[float, "Shortest sampling time of a pass: 0.2s, 50ms, 1m or seconds."] = 0.2
    max_time: Annotated[float, "Longest sampling time of a pass: 0.2s, 50ms, 1m or seconds."] = 10.0
    confidence: Annotated[
        float,
        "Relative half-width of the median's confidence interval at which sampling stops: 1% or "
        "0.01.",
    ] = 0.01
    cache: axes.Cache = axes.COLD
    mode: tuple[axes.Mode, ...] = (axes.DEVICE,)
    """The modes, run one after the other: ``device`` times a call's work on the device, ``graph``
    the replay of its CUDA graph, ``host`` a loop of calls."""
    processes: Annotated[
        int | None,
        "Number of fresh processes that sample each case and share its time; 1 samples in the "
        "process of the command.",
    ] = None
    """None is the device's number in PROCESSES."""
    budget: Annotated[
        float | None, "Longest time of the whole run: 30s, 5m or seconds; of tables the shortest."
    ] = field(default=None, repr=False)

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
    device: Literal["cpu", "cuda"] | None = None
    implementation: str | None = None
    pass_: axes.PassName | None = None
    layout: axes.Layout | None = None
    grad_output: axes.GradOutput | None = None
    reason: Annotated[str, "Reason for the rule, shown in the report."] = ""

    @property
    def conditions(self) -> dict[str, object]:
        """The values to match, by config key."""
        found = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self)}
        return {k: v for k, v in found.items() if k != "reason" and v is not None}

    @property
    def written(self) -> dict[str, object]:
        """The rule as in a config."""
        size = {} if self.size is None else {"size": format_size(self.size)}
        return self.conditions | size | ({"reason": self.reason} if self.reason else {})

    def __str__(self) -> str:
        written = (f"{key}: {value}" for key, value in self.written.items() if key != "reason")
        return "{" + ", ".join(written) + "}"


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
class CaseTolerance:
    """A looser tolerance for one named case; the table shows it."""

    case: str
    ulp: float


@dataclass(frozen=True)
class Config:
    """All axes of a run, and its timing. Empty ``losses``, ``checks`` and ``columns`` mean all."""

    title: Annotated[str, "Title above the table of results."] = ""
    device: Annotated[str, "Device to run on: auto, cpu, cuda or cuda:N."] = "auto"
    losses: Annotated[
        tuple[LossChoice, ...],
        "Losses: all, names, or maps with parameters such as {smooth_l1: {beta: [0.5, 1.0]}}; "
        "off_default adds the losses that are not named, with parameters off their defaults; "
        "weighted adds each loss with a weight (weighted_mse, ...), with such parameters; rows "
        "adds each loss over rows, in all of its forms; rows_off_default adds them with such "
        "parameters; rows_of_logits and rows_of_vectors add those whose rows hold these; linear "
        "adds the fused linear losses, linear_off_default with such parameters.",
    ] = ()
    sizes: Annotated[
        tuple[Shape, ...],
        "Sizes: 1024x1024, 32K (32768), 1K..32K*2, pow2[10:30:5] or {pow2: [10, 30, 5]}; of fused "
        "linear losses tokens x width x classes.",
    ] = ()
    dtypes: tuple[axes.DType, ...] = ("float32",)
    reductions: tuple[Reduction, ...] = ("mean",)
    passes: tuple[axes.PassName, ...] = axes.PASSES
    grad_outputs: Annotated[
        tuple[axes.GradOutput, ...],
        "Values of grad_output for forward_backward: numbers, or changing for another number in "
        "each call.",
    ] = (1.0,)
    layouts: tuple[axes.Layout, ...] = (axes.CONTIGUOUS,)
    implementations: Annotated[
        tuple[str, ...], "Implementations, as `losscli list implementations` names them."
    ] = (CUSTOM, "reference")
    inputs: Inputs = Inputs()
    exclude: Annotated[
        tuple[Exclude, ...],
        "Rules that leave rows out. A row is left out if it matches every key of a rule, unless "
        "the command line names each value of the rule.",
    ] = ()
    timing: Timing = Timing()
    placement: Annotated[
        Placement,
        "How operands are split over ranks, which --ranks or torchrun starts: vocabulary gives "
        "each rank some of the classes of every row.",
    ] = WHOLE
    tolerances: Annotated[
        tuple[CaseTolerance, ...],
        "Tolerances: {CASE NAME: {ulp: N}} loosens that of one case; --dry-run lists the names.",
    ] = ()
    checks: Annotated[
        tuple[str, ...],
        "Checks that `losscli verify` runs, as `losscli list checks` names them; all without it.",
    ] = ()
    columns: Annotated[
        tuple[str, ...],
        "Columns of the tables of `losscli bench`, as `losscli list columns` names them.",
    ] = ()
    filters: tuple[Filter, ...] = ()
    """The command line's filters: a row must match one."""
    whole_targets: bool = False
    """Whether targets of elementwise losses have the input's shape; ``losscli judge`` sets it."""
    ranks: int = 1
    """The number of ranks, from the command line or torchrun."""
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
