"""The records of a run, in SI units: seconds, bytes, GB/s of 1e9 bytes a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Final, Literal

from losscli.axes import COLD, DEVICE, Cache, Mode, PassName
from losscli.cases import Case
from losscli.reasons import Code

SCHEMA_VERSION = 1

BenchStatus = Literal["ok", "skipped", "failed"]
VerifyStatus = Literal["pass", "warn", "fail", "skipped"]
OK: Final = "ok"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
PASS: Final = "pass"
WARN: Final = "warn"
NO_WORSE_THAN_TORCH: Final = "no_worse_than_torch"
"""The code of a warning: wrong by the oracle, as PyTorch's own formula is."""
FAIL: Final = "fail"
Judgement = Literal["faster", "slower", "same", "unclear"]
"""The verdict of two times."""

IMPOSSIBLE_SHARE = 1.05
"""Part of the memory limit above which a time is impossible."""
Stop = Literal["confidence", "time limit", "sample limit", "throttled", "nothing left to sample"]
"""The reason that sampling stopped."""
CALL_SECONDS = 5e-6
"""Seconds by which a call may be faster than the limit: no share of a limit of a few launches says
anything about the memory."""


DIFFERENT_BEYOND = 0.01
"""Part by which two times have to differ, with confidence, to be called different: less comes from
where a buffer happens to lie."""
SAME_WITHIN = 0.03
"""Part that two times differ by at most, with confidence, to be called the same: three times what
sampling stops at, so that of equal ones nearly all are found equal."""
BUSY = 0.1
"""Part of the CPU's cores above which the use by other programs is reported."""
HOST_GAPS = "host_gaps"
"""Among a result's conditions: batches of samples in which the GPU waited for the host."""
FASTER: Final = "faster"
SLOWER: Final = "slower"
SAME: Final = "same"
UNCLEAR: Final = "unclear"


@dataclass(frozen=True)
class Seconds:
    """The distribution of one call's time."""

    median: float
    p20: float
    p80: float
    min: float
    samples: tuple[float, ...]
    interval: tuple[float, float] | None = None
    """Holds the median with a confidence of 95 %; None where the samples are too few. Of several
    processes it holds what the next run will find."""
    processes: tuple[int, ...] = ()
    """How many of the samples each process took, which stand one process after the other. Empty
    where the process of the command took all, as in records from before there were several."""

    @property
    def by_process(self) -> list[tuple[float, ...]]:
        """The samples of each process."""
        if not self.processes:
            return [self.samples]
        ends = list(accumulate(self.processes))
        return [self.samples[end - n : end] for end, n in zip(ends, self.processes, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return the fields, the samples to as many digits as any clock has."""
        return asdict(self) | {
            "samples": [float(f"{sample:.6g}") for sample in self.samples],
            "interval": list(self.interval) if self.interval else None,
            "processes": list(self.processes),
        }


@dataclass(frozen=True)
class Speedup:
    """How many times faster than another one is: the other's time over its own."""

    value: float
    low: float
    high: float
    """What holds the ratio with a confidence of 95 %; of fewer than six rounds, all they span."""
    confident: bool = True
    """Whether there were rounds enough for an interval; of fewer no verdict is right often enough.
    Records from before this was told have no false."""
    processes: tuple[float, ...] = ()
    """What each process found, where there were several."""

    @property
    def verdict(self) -> Judgement:
        """``faster``, ``slower``, ``same``, or ``unclear`` where the interval allows no other."""
        if not self.confident:
            return UNCLEAR
        if self.low > 1 + DIFFERENT_BEYOND:
            return FASTER
        if self.high < 1 / (1 + DIFFERENT_BEYOND):
            return SLOWER
        farthest = max(self.high, 1 / self.low)
        return SAME if farthest <= 1 + SAME_WITHIN else UNCLEAR

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the verdict."""
        return asdict(self) | {"processes": list(self.processes), "verdict": self.verdict}


@dataclass(frozen=True)
class Error:
    """The error of a result against the oracle; None where it was not measured."""

    value_abs: float | None = None
    value_rel: float | None = None
    value_ulp: float | None = None
    grad_ulp: float | None = None
    """Largest over the elements of the gradients."""
    grad_rel: float | None = None
    """Norm of the difference over the norm of the gradient."""


def is_busy(conditions: Mapping[str, Any]) -> bool:
    """Tell whether others took so much of the machine that it has to be said."""
    return (conditions.get("others") or 0.0) > BUSY


def is_impossible(
    gbps: float, limit_gbps: float, seconds: float, conditions: Mapping[str, Any]
) -> bool:
    """Tell whether bytes cannot have been moved so fast, for so many seconds.

    Nothing is said where others kept the machine busy: the limit was measured at another moment,
    when they may have been busier.
    """
    share = gbps / limit_gbps
    if is_busy(conditions) or share <= IMPOSSIBLE_SHARE:
        return False
    return (share - 1) * seconds > CALL_SECONDS


@dataclass(frozen=True)
class BenchResult:
    """One implementation, one pass, one case."""

    case: Case
    implementation: str
    pass_: PassName
    status: BenchStatus
    reason: str = ""
    code: Code = ""
    """The code of the reason, if the result is not a good one."""
    stop: Stop | None = None
    """Why no more samples were taken."""
    no_limit: str = ""
    """The reason that the memory limit is unknown."""
    seconds: Seconds | None = None
    host_seconds: float | None = None
    """Median time that one call keeps the host busy while the GPU is idle; None on the CPU and
    where that is what was timed."""
    gbps: float | None = None
    limit_gbps: float | None = None
    """The speed of kernels that only move the bytes, in the same run and sizes."""
    default_allocator_seconds: float | None = None
    """Median in one more process, whose allocator gives freed memory back to the system as glibc
    does by default; None where the allocator was not set for the others."""
    speedup: Mapping[str, float] = field(default_factory=dict)
    """Time of each other implementation over this one's, the median over the rounds in which they
    were sampled side by side: above 1 this one is faster."""
    ratios: Mapping[str, Speedup] = field(default_factory=dict)
    """The same with its interval and verdict."""
    planned_extra_bytes: int | None = None
    """The memory plan for ``peak_extra_bytes``."""
    peak_extra_bytes: int | None = None
    """Most bytes allocated during a call beyond inputs, loss and gradients, by the allocator's own
    count."""
    error: Error = Error()
    table: str = ""
    """Title of the config's table that asked for this."""
    mode: Mode = DEVICE
    """How it was called and timed: ``device``, ``graph`` or ``host``."""
    cache: Cache = COLD
    """The state of the caches before each sample: ``cold`` or ``warm``."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    """The conditions of the machine during sampling, flat; empty where nothing was sampled."""

    @property
    def bytes(self) -> int:
        """The floor of memory traffic, from the byte model."""
        return self.case.floor_bytes(self.pass_)

    @property
    def limit_share(self) -> float | None:
        """Traffic over the limit of the memory."""
        return self.gbps / self.limit_gbps if self.gbps and self.limit_gbps else None

    @property
    def busy(self) -> bool:
        """Whether others took so much of the machine that it has to be said."""
        return is_busy(self.conditions)

    @property
    def impossible(self) -> bool:
        """Whether this is faster than moving the bytes can be."""
        if not (self.seconds and self.gbps and self.limit_gbps):
            return False
        return is_impossible(self.gbps, self.limit_gbps, self.seconds.median, self.conditions)

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their public names."""
        return {
            "case": self.case.to_json(),
            "implementation": self.implementation,
            "pass": self.pass_,
            "status": self.status,
            "reason": self.reason,
            "code": self.code,
            "stop": self.stop,
            "no_limit": self.no_limit,
            "seconds": self.seconds.to_json() if self.seconds else None,
            "host_seconds": self.host_seconds,
            "bytes": self.bytes,
            "gbps": self.gbps,
            "limit_gbps": self.limit_gbps,
            "impossible": self.impossible,
            "default_allocator_seconds": self.default_allocator_seconds,
            "speedup": dict(self.speedup),
            "ratios": {name: ratio.to_json() for name, ratio in self.ratios.items()},
            "planned_extra_bytes": self.planned_extra_bytes,
            "peak_extra_bytes": self.peak_extra_bytes,
            "error": asdict(self.error),
            "table": self.table,
            "mode": self.mode,
            "cache": self.cache,
            "conditions": dict(self.conditions),
        }


@dataclass(frozen=True)
class VerifyResult:
    """One check of one implementation on one case."""

    case: Case
    implementation: str
    check: str
    status: VerifyStatus
    reason: str = ""
    error: Error = Error()
    reference_error: Error = Error()
    """PyTorch's own distance from the oracle on the same inputs."""
    tolerance: str = ""
    """The tolerance that the config or the loss loosened, and the loss's reason."""
    shrunk_from: str = ""
    """Name of the config's case whose failure this shows on a smaller one."""
    code: Code = ""
    """The code of the reason, if the result is not a pass."""
    tolerance_ulp: float | None = None
    """The tolerance that the config or the loss loosened."""

    @property
    def told(self) -> str:
        """The reason as people read it."""
        excuse = "no worse than torch: " if self.code == NO_WORSE_THAN_TORCH else ""
        return excuse + self.reason

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their public names."""
        return {
            "case": self.case.to_json(),
            "implementation": self.implementation,
            "check": self.check,
            "status": self.status,
            "reason": self.reason,
            "code": self.code,
            "error": asdict(self.error),
            "reference_error": asdict(self.reference_error),
            "tolerance": self.tolerance,
            "tolerance_ulp": self.tolerance_ulp,
            "shrunk_from": self.shrunk_from,
        }


@dataclass(frozen=True)
class SelfTestResult:
    """The outcome of the self-test for one implementation and loss."""

    case: Case
    """The case that failed, or the first case."""
    implementation: str
    honest: bool
    failed: bool
    check: str = ""
    """The first that failed it."""
    reason: str = ""

    @property
    def surprising(self) -> bool:
        """Whether a wrong one passed, or an honest one did not."""
        return self.failed == self.honest

    @property
    def status(self) -> str:
        """``fail`` where verification itself is at fault."""
        return FAIL if self.surprising else PASS

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their public names."""
        return {
            "case": self.case.to_json(),
            "implementation": self.implementation,
            "honest": self.honest,
            "failed": self.failed,
            "check": self.check,
            "status": self.status,
            "reason": self.reason,
        }


KNOWN_TIME, OVERHEAD = "known time", "overhead"
"""Parts of the timer's self-test; the others are called after a verdict."""


@dataclass(frozen=True)
class TimerTestResult:
    """The outcome of one part of the timer's self-test."""

    test: str
    """``known time``, ``overhead``, or the verdict that comparisons should get."""
    subject: str
    """What was timed or compared."""
    status: str
    """``pass`` or ``fail``."""
    reason: str = ""
    seconds: float | None = None
    expected_seconds: float | None = None
    right: int | None = None
    """Comparisons that came to the verdict."""
    runs: int | None = None
    """Comparisons."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their public names."""
        return asdict(self)


Result = BenchResult | VerifyResult | SelfTestResult | TimerTestResult


@dataclass(frozen=True)
class Loss:
    """A cell in which losscli's own kernel is slower than a peer, beyond what noise explains."""

    case: str
    """Its name."""
    pass_: PassName
    mode: Mode
    table: str
    peer: str
    """The peer against which the kernel is worst."""
    ratio: float
    """The peer's time over the kernel's, below 1."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their public names."""
        return {name.rstrip("_"): value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Headline:
    """The headline of a bench run: the cells in which losscli's own kernel is slower."""

    cells: int
    """Cases and passes in which both the kernel and a peer were timed."""
    slower: tuple[Loss, ...]
    too_short: int = 0
    """Cells in which the kernel was behind in too few rounds for any test to tell."""
    untimed: int = 0
    """Cells in which a peer was timed and the kernel was not."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields under their public names."""
        return asdict(self) | {"slower": [loss.to_json() for loss in self.slower]}


@dataclass(frozen=True)
class Exclusion:
    """A rule of the config's ``exclude`` that left rows out."""

    rule: str
    """As a config has it: ``{device: cpu, implementation: compile}``."""
    rows: int
    """Cases, passes and implementations that it left out."""
    reason: str = ""
    """Which the config gives."""

    def __str__(self) -> str:
        """Return a line for people."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        why = f": {self.reason}" if self.reason else ""
        return f"excluded {rows} by the config's rule {self.rule}{why}"


@dataclass(frozen=True)
class Run:
    """Everything a command measured."""

    kind: str
    """``bench``, ``verify``, ``self-test`` (of verify) or ``timer-test`` (of bench)."""
    command: tuple[str, ...]
    created: str
    """ISO 8601, UTC."""
    environment: Mapping[str, Any]
    results: tuple[Result, ...]
    plan: str = ""
    """A digest of the tasks: a resumed run has to have the same."""
    headline: Headline | None = None
    """Of a bench that is finished and has peers."""
    excluded: tuple[Exclusion, ...] = ()
    """What the config's rules left out."""
    cut_off: bool = field(default=False, compare=False)
    """Whether the run was read from a file whose last line is cut; no part of the record."""

    def to_json(self) -> dict[str, Any]:
        """Return the record that users script against."""
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": self.kind,
            "command": list(self.command),
            "created": self.created,
            "environment": dict(self.environment),
            "plan": self.plan,
            "excluded": [asdict(exclusion) for exclusion in self.excluded],
            "headline": self.headline.to_json() if self.headline else None,
            "results": [result.to_json() for result in self.results],
        }
